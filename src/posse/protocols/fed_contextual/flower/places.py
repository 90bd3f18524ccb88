"""Names of files in the folder of a run."""

STATE, SPENT, PROGRESS = "state.npz", "spent.json", "progress.jsonl"
RESULT, FAILED = "result.json", "failed.txt"
