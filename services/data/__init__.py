"""Reads PGN, samples positions, serves them over HTTP and gRPC, and feeds the `positions` stream."""
