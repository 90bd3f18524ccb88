"""What all other folders use: errors, settings, randomness, exact mathematics, roles and files."""
