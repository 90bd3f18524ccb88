"""The systems; each has roles, messages, a plain twin and a README for developers."""
