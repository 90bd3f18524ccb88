"""Level `strict` of Samba: two servers that compute on shares, and a dealer of randomness."""
