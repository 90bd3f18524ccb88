"""Reports: the answer first, then sections of a page, and audits."""
