"""Training in several processes: how they join, share the work and combine the results.

Only rank 0 uses Redis, commits, publishes and reports. The others follow its orders: every process gets the
whole batch, computes its share of the rows, and updates its copy or shards of the weights with the same
summed gradient.
"""
