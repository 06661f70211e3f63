"""GPT-2 in plain PyTorch, of any size: RookWorld-LM-124M has the shape of GPT-2 small.

Uses torch and safetensors, not transformers. Files have the format of Hugging Face.
"""
