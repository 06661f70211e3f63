"""Turns groups from the stream into tensors: intake, advantages, rows, and checks for NaN and infinity."""
