"""Losses, computed from tensors. This package uses no model and no files.

Vectors have one entry per completion token of a micro-batch; N is the number of tokens.
"""
