"""PGN: files split into games, and the one guarded reader of their moves. Needs python-chess alone."""
