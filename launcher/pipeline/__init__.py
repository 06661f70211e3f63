"""Runs the steps of a pipeline file, from raw games to an evaluated policy."""
