"""Finds the largest batch that fits into memory, by real steps of the model on made-up groups."""
