"""Questions with their answers, made from positions."""
