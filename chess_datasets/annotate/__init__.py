"""Annotations: analyses of positions in prose, every claim checked."""
