"""From an adapter on disk to the first token under it, while the server answers rollouts."""
