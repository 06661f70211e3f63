"""Reads and draws the statistics in a run's metrics.jsonl.

matplotlib and numpy are imported only when something is drawn, so importing this package is cheap.
"""

CURVES_FILE = "curves.png"
"""Name of the picture in a run's folder."""
