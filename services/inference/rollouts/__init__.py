"""Positions to scored groups of completions. Imports no vllm."""
