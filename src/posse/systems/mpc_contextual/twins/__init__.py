"""The same bandit without shares: in fixed point, equal bit for bit, and in floats."""
