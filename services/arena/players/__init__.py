"""Players: policies behind an endpoint, UCI engines, and simple movers. Each answers one position at a time."""
