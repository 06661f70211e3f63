"""From groups of the stream to tensors: intake, advantages, rows, what is finite."""
