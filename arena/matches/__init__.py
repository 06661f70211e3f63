"""Games between players: openings, the game loop, schedules, the journal of finished games, PGN."""
