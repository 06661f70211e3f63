"""The policy as a module: layers over a base, attention by blocks, the head in chunks."""
