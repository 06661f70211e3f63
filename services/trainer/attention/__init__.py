"""Attention on packed sequences: in blocks, and as the attention of Hugging Face models."""
