"""What is computed in a round, by simulator and devices alike: numpy and JAX are all it needs."""
