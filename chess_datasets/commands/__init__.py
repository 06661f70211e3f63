"""The commands of `rookery data`. `--help` imports only the settings, which are light."""

COMMANDS = {
    name: (summary, f"{__name__}.{module}", f"{__name__}.settings.{settings}", name)
    for name, module, settings, summary in (
        ("index", "games", "games.IndexSettings", "write an index beside games, for access to any game"),
        ("sample", "sample", "games.SampleSettings", "print positions from games, or write them to Parquet"),
        ("games", "games", "games.GamesSettings", "write whole games, as PGN or as a JSON list of strings"),
        ("moves", "games", "games.MovesSettings", "write supervised data: moves played, or whole games"),
        ("tasks", "tasks", "positions.TasksSettings", "write questions with answers, and puzzles"),
        ("annotate", "annotate", "positions.AnnotateSettings", "write analyses, every claim of them checked"),
        (
            "pairs",
            "pairs",
            "positions.PairsSettings",
            "write preference pairs: the best move and a weaker one",
        ),
        ("stats", "stats", "games.StatsSettings", "count games or positions by phase, rating, result, ..."),
        ("republish", "republish", "archives.RepublishSettings", "add an archive to a run's stream again"),
        (
            "rescore",
            "rescore",
            "archives.RescoreSettings",
            "compare an archive's rewards with another scheme",
        ),
    )
}
"""By name: the summary, the module, the class of the settings, and the function that returns the status."""
