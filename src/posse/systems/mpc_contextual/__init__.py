"""A contextual bandit on secret-shared features: linear models, least squares, epsilon-greedy."""
