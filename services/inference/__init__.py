"""The policy served (`server`) and asked (`rollouts`)."""
