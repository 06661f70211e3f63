"""The policy model: an adapter on a base, attention in blocks, and the output head in chunks."""
