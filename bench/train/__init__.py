"""Training steps beside TRL's: samples a second, peak memory, and how the cost grows."""
