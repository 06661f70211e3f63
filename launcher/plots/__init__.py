"""`rookery plot` and `rookery compare`: the curves of runs, and the differences between them."""
