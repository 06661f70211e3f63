"""Trains the policy, on the groups of a run or on files of examples (`sft`, `dpo`), and reward models."""
