"""The inference server (`server`), and the process that generates groups with it (`rollouts`)."""
