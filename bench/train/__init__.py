"""Training steps beside TRL's: samples a second and peak memory."""
