"""The reward service beside the physical limit, raw UCI pipes, and beside the obvious way, python-chess."""
