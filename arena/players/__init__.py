"""Players of games: policies behind an endpoint, UCI engines, simple movers."""
