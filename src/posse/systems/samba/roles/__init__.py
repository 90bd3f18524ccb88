"""What each party of the federation does with the messages it receives."""
