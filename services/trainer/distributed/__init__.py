"""Training in several processes: how they join, where weights lie, and how results are combined.

Only rank 0 uses Redis, commits, publishes and reports. The others follow its commands: every process gets the
whole batch, computes its share of the rows, and updates its copy or shards of the weights with the same
summed gradient.
"""
