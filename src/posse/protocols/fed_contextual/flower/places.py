"""Names of files in the folder of a run."""

STATE, PROGRESS, RESULT, FAILED = "state.npz", "progress.jsonl", "result.json", "failed.txt"
