"""The settings of the commands. They import nothing of the data sets, so that `--help` is fast.

shared       groups of flags that several commands have
games        index, sample, games, moves, stats
positions    tasks, annotate, pairs
archives     republish, rescore
"""
