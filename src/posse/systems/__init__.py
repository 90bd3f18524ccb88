"""The systems; each has roles, messages, a plain twin and a README with its guarantee."""
