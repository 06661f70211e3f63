"""Reads an analysis back and checks it: independent of what wrote it."""
