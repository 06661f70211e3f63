"""`rookery up`: runs all services on this machine until --steps, --minutes or Ctrl-C."""

from rich.console import Console

from launcher.runs import HELD_OUT_FILE, settle_settings, write_held_out
from launcher.session import End, Session
from launcher.settings import UpSettings

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 + SIGINT, as in shells."""


def up(given: UpSettings, console: Console) -> int:
    """Runs training, displays its progress and stops all services. Returns the exit status.

    Raises:
        SetupError: a service cannot start; the message says what to change.
        RookeryError: a service crashed too often.
    """
    settings = settle_settings(given)
    with Session(settings, console) as session:
        session.say(f"run {settings.run}: logs and adapters in {session.plan.run_dir}; Ctrl-C stops it")
        if settings.from_version is not None:
            session.say(
                f"goes back to version {settings.from_version}, unless it has gone back to it before: later "
                "versions are given up, the groups that they learned from stay counted as trained"
            )
        if settings.evaluate_every:
            count, seed = settings.evaluate_positions, settings.seed
            path = session.plan.run_dir / HELD_OUT_FILE
            write_held_out(path, source=settings.source, count=count, seed=seed)
        end = session.train()
        session.say(f"{end}; stopping")
        if end is not End.INTERRUPT:
            session.stop("rollouts", "trainer", "feed")
            session.finish_evaluation()
        session.stop()
    console.print(
        f"{session.steps_done} steps. Go on with: rookery up --run {settings.run}",
        soft_wrap=True,
        highlight=False,
    )
    return INTERRUPTED if end is End.INTERRUPT else 0
