"""The ground floor: errors, counter-based randomness, exact mathematics, roles and messages."""
