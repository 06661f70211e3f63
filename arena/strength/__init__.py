"""Strength from results: Elo with intervals, sequential tests, joint fits. Independent of chess."""
