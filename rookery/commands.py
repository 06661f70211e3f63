"""All commands in one table, which `rookery.command_line` runs and lists.

Settings and functions are named by strings and imported when their command runs, so that this module imports
nothing slow.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rookery.settings import Settings


class Command(NamedTuple):
    """A command: the words after `rookery`, and what it runs. A family of commands, as `serve`, runs none."""

    usage: str
    """Its name in small letters, then its main arguments in capitals."""
    group: str
    """The heading above it in the help."""
    summary: str
    runs: str = ""
    """The function, as MODULE:NAME, and the class of its settings, in the same module or as MODULE:NAME. The
    function takes the settings, and may return the exit status, or a coroutine."""
    needs: tuple[tuple[str, str], ...] = ()
    """Packages that must be installed, each with the extra that installs it."""
    logs: str = ""
    """The name in its log."""
    level: str = "INFO"
    """What it logs at least."""
    prepare: str = ""
    """A function that takes the settings before the module of the command's function is imported."""
    show: str = ""
    """A function that prints the settings for --dry-run, instead of `Settings.print_resolved`."""

    @property
    def name(self) -> str:
        """The words that call it, such as `serve data`."""
        return " ".join(word for word in self.usage.split() if word.islower())

    @property
    def family(self) -> str:
        """The family that it is in, such as `serve`; empty if it is in none."""
        return self.name.rpartition(" ")[0]

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line that starts it."""
        return (sys.executable, "-m", "launcher", *self.name.split())

    @property
    def settings_class(self) -> "type[Settings]":
        """The class of its settings, which is imported."""
        kind: type[Settings] = load(self.settings)
        return kind

    @property
    def ports(self) -> dict[str, int]:
        """The default ports of a service by setting."""
        fields = self.settings_class.model_fields
        return {name: fields[name].default for name in ("port", "grpc_port") if name in fields}

    @property
    def function(self) -> str:
        """Where its function is; empty for a family."""
        return self.runs.partition(" ")[0]

    @property
    def settings(self) -> str:
        """Where the class of its settings is; empty for a family."""
        place = self.runs.partition(" ")[2]
        return place if ":" in place or not place else f"{self.function.partition(':')[0]}:{place}"


_RUNS, _PARTS, _FILES, _RESULTS = (
    *("Whole runs on this machine", "Single parts", "Training on files", "Pipelines and results"),
)
_DATA, _REWARD, _ROLLOUTS = (("pyarrow", "data"),), (("fastapi", "reward"),), (("fastapi", "rollouts"),)
_TRAINER, _ARENA, _VIEWER = (("torch", "trainer"),), (("matplotlib", "arena"),), (("duckdb", "viewer"),)
_VLLM = (("vllm", "inference] or rookery[inference-cpu"),)
_SHOW, _PREPARE = "launcher.up:print_services", "services.trainer.__main__:prepare"
_PLAYERS = "arena.players.spec:check_players"


def _service(
    usage: str, summary: str, runs: str, needs: tuple[tuple[str, str], ...], **options: Any
) -> Command:
    function, settings = runs.split()
    options = {"logs": usage.split()[1], **options}
    return Command(usage, "", summary, f"{function} rookery.config.{settings}", needs, **options)


def _trainer(usage: str, summary: str, runs: str) -> Command:
    return Command(
        usage, _FILES, summary, f"services.trainer.{runs}", _TRAINER, logs=usage.split()[0], prepare=_PREPARE
    )  # fmt: skip


def _arena(usage: str, summary: str, runs: str, group: str = "") -> Command:
    function, settings = runs.split()
    place = f"arena.{function} rookery.config.arena:{settings}"
    return Command(usage, group, summary, place, _ARENA, logs="arena", level="WARNING", prepare=_PLAYERS)


def _data(usage: str, summary: str, runs: str, group: str = "") -> Command:
    module, settings = runs.split()
    name = usage.removeprefix("data ").split()[0]
    place = f"chess_datasets.commands.{module}:{name} "
    place += f"chess_datasets.commands.settings.{settings}:{name.title()}Settings"
    return Command(usage, group, summary, place, _DATA, logs="data", level="WARNING")


COMMANDS = (
    Command("demo", _RUNS, "train on the sample games for a few minutes, then compare before and after",
            "launcher.demo:demo launcher.settings:DemoSettings", show=_SHOW),
    Command("sweep", _RUNS, "run the demo under several settings and seeds, and measure what each changes",
            "launcher.sweep:sweep SweepSettings", show="launcher.sweep:print_runs"),
    Command("up", _RUNS, "start all services and train until --steps, --minutes or Ctrl-C",
            "launcher.up:up launcher.settings:UpSettings", show=_SHOW),
    Command("status RUN", _RUNS, "show the state of a run: versions, groups, streams, services",
            "launcher.status:status StatusSettings"),
    Command("doctor RUN", _RUNS, "gather what a bug report needs, about a run or this machine, into one file",
            "launcher.doctor:doctor DoctorSettings"),
    Command("dead ACTION", _RUNS, "list, show, replay or drop the entries that a run could not handle",
            "launcher.dead:dead DeadSettings"),
    Command("view RUN", _RUNS, "look at the answers of a run in a browser",
            "launcher.view:view ViewSettings", _VIEWER),
    Command("exporter", _RUNS, "export a run's streams as Prometheus metrics",
            "launcher.exporter:export ExporterSettings", _ROLLOUTS, logs="exporter"),
    Command("plan", _RUNS, "predict speed, engine cores, bandwidth and cost of a run from measured points",
            "launcher.capacity:plan CapacitySettings"),

    Command("serve SERVICE", _PARTS, "start one service"),
    _service("serve data", "serves positions over HTTP and gRPC",
             "services.data.service:run data:DataSettings", _DATA),
    _service("serve feed", "adds positions to the run's stream",
             "services.data.feed:run data:FeedSettings", (("fastapi", "data"),)),
    _service("serve archive", "writes every group of a run to Parquet files, on a disk or in S3",
             "services.data.archiver:run data:ArchiverSettings", _DATA, logs="archiver"),
    _service("serve reward", "scores answers with Stockfish",
             "services.reward.__main__:run reward:RewardSettings", _REWARD),
    _service("serve reward-model", "scores answers with a trained reward model",
             "services.trainer.reward_model.server:run finetune:RewardServerSettings", _TRAINER,
             prepare=_PREPARE),
    _service("serve inference", "serves the policy with vLLM",
             "services.inference.server.__main__:run inference:ServerSettings", _VLLM, logs=""),
    _service("serve rollouts", "samples completions for positions and has them scored",
             "services.inference.rollouts.__main__:run rollouts:RolloutsSettings", _ROLLOUTS),
    _service("serve trainer", "trains the policy on the scored groups",
             "services.trainer.process:run trainer:TrainerSettings", _TRAINER, prepare=_PREPARE),
    _service("serve arena", "evaluates every Nth version of a run while it trains",
             "arena.watch:serve_watcher arena:WatchSettings", _ARENA, prepare=_PLAYERS),
    _service("serve viewer", "shows the answers of runs on a web page",
             "services.viewer.__main__:run viewer:ViewerSettings", _VIEWER),
    Command("serve players PLAYER ...", "", "serves models and versions of runs until its input ends",
            "launcher.serve_players:serve_until_eof PlayersSettings", prepare=_PLAYERS),
    Command("ask FEN", _PARTS, "ask a model for its move, and judge the answer",
            "launcher.ask:ask AskSettings", (*_VLLM, *_REWARD)),
    Command("score FEN RESPONSE", _PARTS, "score one answer, or a file of them",
            "services.reward.command:score ScoreSettings", _REWARD),
    Command("check TEXT", _PARTS, "mark what is true and false in a text about a position, or in a PGN",
            "launcher.check:check CheckSettings"),
    Command("annotate PGN", _PARTS, "comment the games of a PGN, every claim checked",
            "launcher.annotate:annotate AnnotatePgnSettings", _REWARD),
    Command("data COMMAND", _PARTS, "make positions and data sets from games"),
    _data("data index", "write an index beside a file of games, for direct access", "games games"),
    _data("data sample", "print positions from games, or write them to Parquet", "sample games"),
    _data("data games", "write whole games, as PGN or as a JSON list of strings", "games games"),
    _data("data moves", "write a supervised data set: the move played, the legal moves, or whole games",
          "games games"),
    _data("data tasks", "write questions with answers: RookWorld's lines, moves, positions, puzzles",
          "tasks positions"),
    _data("data annotate", "write analyses in prose, with every claim checked", "annotate positions"),
    _data("data pairs", "write preference pairs: the engine's move and a weaker one", "pairs positions"),
    _data("data stats", "count games or positions by phase, rating, result, time control",
          "stats games"),
    _data("data overlap EXAM ...", "count the positions of exams that are in training data", "overlap games"),
    _data("data republish", "add the groups of an archive to a run's stream again", "republish archives"),
    _data("data rescore", "score the answers of an archive again with another scheme", "rescore archives"),
    _data("rescore ARCHIVE", "score the answers of an archive again with another scheme",
          "rescore archives", _PARTS),
    Command("replay RUN", _PARTS, "train on the archive of a run again, and compare the versions' bytes",
            "launcher.replay:replay ReplaySettings", (*_DATA, *_TRAINER)),

    _trainer("sft", "fine-tune a model on chat examples",
             "finetune.sft:run rookery.config.finetune:SftSettings"),
    _trainer("reward-model", "train a reward model on preference pairs",
             "reward_model.training:run rookery.config.finetune:RewardModelSettings"),
    _trainer("dpo", "train a policy on preference pairs (DPO)",
             "finetune.dpo:run rookery.config.finetune:DpoSettings"),
    _trainer("merge RUN[@VERSION]", "write a version of a run as a model of its own",
             "merge:run MergeSettings"),
    _trainer("push RUN[@VERSION] REPO", "upload a version of a run to the Hugging Face Hub, with a card",
             "push:run PushSettings"),
    _trainer("autobatch", "measure the largest batch that fits into memory",
             "autobatch:run rookery.config.trainer:AutobatchSettings"),
    _trainer("tiny", "write a small model with random weights", "tiny:run TinySettings"),
    _trainer("gpt2", "continue a text with a GPT-2", "gpt2.__main__:run GenerateSettings"),

    Command("pipeline ACTION FILE", _RESULTS, "run the steps of a pipeline file that are not up to date",
            "launcher.pipeline.command:main PipelineSettings"),
    Command("evaluate PLAYER ...", _RESULTS, "evaluate models, runs and engines: positions, puzzles, matches",
            "launcher.evaluate:evaluate EvaluateSettings", _ARENA, prepare=_PLAYERS),
    Command("battery PLAYER ...", _RESULTS, "evaluate players in every section, on one page with a summary",
            "launcher.evaluate:evaluate BatterySettings", _ARENA, prepare=_PLAYERS),
    Command("plot RUN ...", _RESULTS, "draw the training curves of runs",
            "launcher.plots.command:plot PlotSettings", _ARENA),
    Command("compare RUN RUN ...", _RESULTS, "compare runs: curves, and means of the last steps",
            "launcher.plots.command:compare_runs CompareSettings", _ARENA),
    _arena("uci", "play as a UCI engine, in a GUI, a match or on Lichess",
           "uci.session:run UciSettings", _RESULTS),
    Command("arena COMMAND", _RESULTS, "evaluate players behind services that run already"),
    _arena("arena evaluate PLAYER ...", "evaluate players on positions, puzzles and test suites",
           "session:run ArenaEvaluateSettings"),
    _arena("arena questions", "print the questions of the section brittleness, for other harnesses",
           "sections.brittleness:print_questions QuestionsSettings"),
    _arena("arena curve RUN", "draw the learning curve of a run", "report:write_curve CurveSettings"),
    _arena("arena match PLAYER OPPONENT", "play games between two; --sprt stops when one is clearly stronger",
           "matches.session:run_match MatchSettings"),
    _arena("arena tournament PLAYER ...", "play games between many players and fit their ratings together",
           "matches.session:run_tournament TournamentSettings"),
    _arena("arena elo GAMES", "fit the ratings of all players of a games.jsonl",
           "matches.session:run_elo EloSettings"),
)  # fmt: skip
"""All commands, in the order of the help."""

BY_NAME = {command.name: command for command in COMMANDS}


def load(place: str) -> Any:
    """What MODULE:NAME names. The module is imported."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
