"""Figure 8 of the Samba paper."""
