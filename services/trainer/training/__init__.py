"""Training on batches of groups: the update of a step, its optimizer and state, and a trainer per process."""
