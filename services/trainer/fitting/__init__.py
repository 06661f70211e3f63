"""Training on a fixed set of examples: what `sft`, `reward-model` and `dpo` share.

A course brings the model and the loss; this brings rows of tokens, steps, evaluation, checkpoints, export.
"""
