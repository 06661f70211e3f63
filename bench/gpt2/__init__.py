"""Our GPT-2 beside transformers': logits, and generation with a cache of keys and values."""
