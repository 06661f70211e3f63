"""A web page over runs: what the policy answered, how it was judged, and how that changes while it trains."""
