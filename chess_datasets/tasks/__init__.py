"""Makes questions with answers from positions."""
