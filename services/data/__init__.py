"""PGN to positions: sampling, HTTP and gRPC, and the feed of the `positions` stream."""
