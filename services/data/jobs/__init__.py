"""Runs work in processes and coroutines, and shows its progress."""
