"""Preference pairs: the engine's move and a weaker one."""
