"""Positions, drawn from games or generated: orders, samples, recipes and counts."""
