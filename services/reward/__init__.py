"""(fen, response) to Verdict: parser, win probability, Stockfish pool, HTTP and gRPC."""
