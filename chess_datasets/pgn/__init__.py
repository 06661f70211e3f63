"""Reads games from PGN files: bytes, tags, moves and offsets."""
