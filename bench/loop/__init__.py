"""Traces trained per second: the whole asynchronous loop against TRL's GRPOTrainer, same work, same run."""
