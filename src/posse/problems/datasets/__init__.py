"""Data files: reading tables, the data sets that Posse knows, and the numbers that ship with it."""
