"""GPT-2 in plain PyTorch, of any size: RookWorld-LM-124M has the shape of GPT-2 small.

Imports torch and safetensors, never transformers; its files are Hugging Face's.
"""
