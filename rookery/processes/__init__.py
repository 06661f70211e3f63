"""Child processes: starts them, chooses their ports, and ends them with all their descendants."""
