"""Training on a fixed set of examples: `sft`, `dpo`, and what they share with `reward-model`.

A `FinetuneTask` provides the model and the loss. The loop, checkpoints and export are the same for all.
"""
