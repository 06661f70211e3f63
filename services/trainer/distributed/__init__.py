"""Training in several processes: how they join, place weights, and combine results.

Only rank 0 uses Redis, commits, publishes and reports. The other processes carry out its commands. Every
process gets the whole batch, computes its share of the rows, and updates its copy or shards of the weights
with the same summed gradient.
"""
