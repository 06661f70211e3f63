"""Training in several processes: who takes part, who computes what, and how the numbers come together.

Rank 0 alone speaks to Redis, commits, publishes and reports. The others follow its orders: every process
gets the whole batch, computes its share of the rows, and moves its copy of the weights, or its shards of
them, by the same summed gradient.
"""
