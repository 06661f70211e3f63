"""Measures how well players play chess, with confidence intervals.

It is a client of inference servers, engines and the reward service. It trains nothing and serves nothing.
"""
