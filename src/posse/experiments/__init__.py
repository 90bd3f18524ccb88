"""Published figures, reproduced."""
