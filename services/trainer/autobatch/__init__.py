"""The largest batch that fits: real steps of the very model, growing, and their real peak of memory.

probe      two steps of one configuration, and what they held
search     which configurations to try, and the choice
profiles   the table of them, and memory_profiles.json
"""
