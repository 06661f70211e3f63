"""Child processes: started, given ports, ended with all their descendants."""
