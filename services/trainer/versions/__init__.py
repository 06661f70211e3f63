"""Versions of the policy: committed to disk, then published."""
