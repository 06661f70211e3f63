"""Benchmarks: `python -m bench.<name>` prints figures, each beside a named peer of the same run."""
