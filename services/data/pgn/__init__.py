"""Games as they lie in files: bytes, tags, moves, and where each stands."""
