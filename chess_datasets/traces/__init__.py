"""Archives the groups of runs, and scores them again."""
