"""Compares two policies on held-out positions, with confidence intervals.

It is a client of the inference server and the reward service. It trains nothing and serves nothing.
"""
