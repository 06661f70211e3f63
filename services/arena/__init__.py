"""Compares two policies on held-out positions and says how sure it is.

Asks the inference server and the reward service over the wire, like anyone else would; it trains
nothing and serves nothing.
"""
