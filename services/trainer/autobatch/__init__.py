"""Finds the largest batch that fits, by real steps of the model with growing batches and their peak memory.

probe      two steps of one configuration, and what they held
search     which configurations to try, and the choice
profiles   the table of them, and memory_profiles.json
"""
