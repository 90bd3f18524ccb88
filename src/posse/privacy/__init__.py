"""Who may learn what."""
