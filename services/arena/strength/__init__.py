"""Strength from results: Elo with intervals, sequential tests, joint fits, plans. Independent of chess."""
