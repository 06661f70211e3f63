"""The reward model: a number for an answer, learned from pairs, measured, and served.

`training` makes a directory, `card` says what is in it, `scorer` and `app` serve it.
"""
