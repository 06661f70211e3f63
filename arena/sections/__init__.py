"""The sections of an evaluation: each asks one player at a time, and makes tables of all answers."""
