"""Committed versions: durable on disk, then published."""
