"""Training on a fixed set of examples: what `sft`, `reward-model` and `dpo` share.

A course provides the model and the loss. This package provides rows of tokens, steps, evaluation,
checkpoints and export.
"""
