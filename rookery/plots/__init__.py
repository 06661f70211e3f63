"""What a run's metrics.jsonl looks like: read, drawn, compared. Nothing here judges a policy.

Light at import; matplotlib, and numpy with it, come in when there is something to draw or to resample.
"""

CURVES_FILE = "curves.png"
"""In a run's folder."""
