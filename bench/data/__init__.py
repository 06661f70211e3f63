"""Positions from files of games: how fast, beside `zstd -dc`."""
