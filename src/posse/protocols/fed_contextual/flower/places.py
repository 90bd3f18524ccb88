"""Names of files in the folder of a run."""

PROGRESS, RESULT, FAILED = "progress.jsonl", "result.json", "failed.txt"
