"""Losses: tensors in, numbers out. No model and no files here.

Vectors have one entry a completion token of a micro-batch; N is their number.
"""
