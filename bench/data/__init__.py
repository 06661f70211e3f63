"""Positions from a dump of games: how fast, beside python-chess, a native parser and `zstd -dc`."""
