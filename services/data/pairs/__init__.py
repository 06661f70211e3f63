"""Preference pairs: the engine's move beside a weaker one."""
