"""What parties, dealer, puller and payee do, and what they send each other."""
