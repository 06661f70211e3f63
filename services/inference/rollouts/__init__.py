"""Turns positions into scored groups of completions. Does not import vLLM."""
