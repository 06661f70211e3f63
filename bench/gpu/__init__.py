"""The suite of `make gpu`: checks and measures Rookery on a machine's GPUs, part by part, in a report."""
