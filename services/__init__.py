"""The services. Each is a process of its own and imports no other."""
