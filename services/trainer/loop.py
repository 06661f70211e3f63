"""The training loop. The order of its operations ensures that every group is trained on at most once.

For each batch: optimizer step -> commit -> acknowledge -> publish -> reload. If the process is killed before
the commit, the batch is delivered again and trained on with the old weights. If it is killed after it, the
batch is found in the commit's ledger and only acknowledged. A served version is therefore always on disk.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from rookery.failpoints import reach
from rookery.streams import RunStreams
from rookery.trace import Adapter, PolicyVersion
from services.trainer.batches.intake import Intake, ledger_entry
from services.trainer.distributed.process_group import World
from services.trainer.model.base_model import check_group_length
from services.trainer.model.policy import Policy
from services.trainer.records.describe import ages_of, describe_step
from services.trainer.records.flops import SpeedMeter
from services.trainer.records.memory import release_cached
from services.trainer.records.report import StepReporter, json_row, write_token_figures
from services.trainer.records.tracking import track
from services.trainer.training.attempts import Attempts, GroupsAtFault
from services.trainer.training.policy_trainer import PolicyTrainer
from services.trainer.training.ranks import RankZeroTrainer
from services.trainer.training.step import RunningState
from services.trainer.versions import commits
from services.trainer.versions.commits import Commit
from services.trainer.versions.publisher import Publisher

logger = logging.getLogger(__name__)


def train(
    settings: TrainerSettings,
    policy: Policy,
    streams: RunStreams,
    publisher: Publisher,
    *,
    epoch: int,
    stopping: threading.Event,
    world: World = World(),  # noqa: B008 - without state
) -> None:
    """Trains until `max_steps` steps are done or `stopping` is set.

    Raises:
        SetupError: the run cannot be resumed from this folder (see `check_resumable`).
        Conflict: another trainer has taken over the run.
    """
    trainer = RankZeroTrainer(PolicyTrainer.of(settings, policy, world))
    commit = _resume_or_start(settings, trainer, streams)
    publisher.publish(_adapter(settings, commit))
    check = partial(check_group_length, policy.model)
    intake = Intake(streams, settings, commit, check=check, epoch=epoch, stopping=stopping)
    attempts = Attempts(settings.run_dir, trainer)
    passes = settings.ppo_epochs if settings.objective == "ppo" else 1
    meter = SpeedMeter(policy, devices=world.size, passes=passes, mask_truncated=settings.mask_truncated)
    with (
        track(settings.run_dir, enabled=settings.mlflow, params=settings.model_dump(mode="json")) as tracker,
        StepReporter(settings.run_dir, tracker) as reporter,
        intake,
    ):
        reporter.recover(commit.row)
        while not settings.max_steps or commit.version.number < settings.max_steps:
            batch = intake.next_batch(
                version=commit.version.number,
                while_waiting=partial(publisher.republish, _adapter(settings, commit)),
            )
            if batch is None:
                break
            groups, phases = [entry.group for entry in batch], {"rollout_wait": intake.waited_s}
            try:
                with _servers_asleep(settings, publisher, phases), meter.step(), _timed(phases, "train"):
                    stats, state = attempts.train_step(
                        groups, commit=commit, dropped_zero_variance=intake.dropped["zero_variance"]
                    )
            except GroupsAtFault as error:
                intake.reject(batch, error.reasons)
                continue
            reach("trainer.stepped")
            number = commit.version.number + 1
            row = describe_step(groups, stats.row(), version=number, dropped=intake.dropped)
            row |= meter.row(groups, tokens=stats.tokens, train_s=phases["train"])
            with _timed(phases, "commit"):
                commit = _commit(
                    settings,
                    trainer,
                    number=number,
                    ledger=(*commit.ledger, *map(ledger_entry, groups)),
                    dropped=intake.dropped_in_run,
                    row=row,
                    state=state,
                    went_back_to=commit.went_back_to,
                )
            with _timed(phases, "settle"):
                intake.acknowledge(batch, ledger=commit.ledger)
            with _timed(phases, "publish"):
                publisher.publish(_adapter(settings, commit))
                attempts.committed()
                write_token_figures(settings, groups, stats.token_figures, version=number)
            reporter.report(row, phases_s=phases, ages=ages_of(groups, version=number))
            reach("trainer.reported")
            # Also keep the versions from which groups may still arrive: `policy_trainer.mismatch` needs them.
            keep = max(settings.keep, settings.max_staleness + 1)
            commits.prune(settings.adapters_dir, newest=number, keep=keep)
    publisher.wait()
    logger.info("training ended at version %d", commit.version.number)


def _resume_or_start(settings: TrainerSettings, trainer: RankZeroTrainer, streams: RunStreams) -> Commit:
    """Loads the commit to resume from in all processes, or commits version 0 of a new run."""
    commit = check_resumable(settings, streams)
    if commit is None:
        commit = _commit(settings, trainer, number=0, ledger=(), dropped={})
    else:
        trainer.local.load(commit.folder)
        logger.info("resumes from %s", commit.folder)
        if settings.from_version not in (None, commit.version.number):
            logger.warning(
                "--from-version %d: the run has gone back to it already and continues from version %d",
                settings.from_version,
                commit.version.number,
            )
        commit = _renumbered(commit, settings, trainer, streams)
    trainer.load_on_others(commit.folder)
    return commit


def check_resumable(settings: TrainerSettings, streams: RunStreams) -> Commit | None:
    """The commit to resume from, or None for a new run. Must be called before the run is taken over.

    Raises:
        SetupError: the folder is of another run, is damaged, or was made with other settings.
    """
    commit = commits.to_resume(
        settings.adapters_dir, fingerprint=settings.fingerprint(), from_version=settings.from_version
    )
    _check_record(streams.policy.read(), commit, settings)
    return commit


def _check_record(published: Adapter | None, commit: Commit | None, settings: TrainerSettings) -> None:
    """Checks that Redis and the run's folder agree, so that version numbers do not restart if it is lost."""
    local = commit.version if commit else None
    if published is None or (local and local.number == settings.from_version):
        return
    claim = f"run {settings.run!r} has published {published.version.name} from {published.path!r}"
    if local is None or local.number < published.version.number:
        newest = local.name if local else "none"
        raise SetupError(
            f"{claim}, but the newest in {settings.adapters_dir} is {newest}: "
            "restore it, choose another --run"
            + (f", or give up the later versions with --from-version {local.number}" if local else "")
        )
    if local.number == published.version.number and local.sha256 != published.version.sha256:
        raise SetupError(
            f"{claim}, sha256 {published.version.sha256}, but here it has {local.sha256}: "
            "choose another --run"
        )


def _renumbered(
    commit: Commit, settings: TrainerSettings, trainer: RankZeroTrainer, streams: RunStreams
) -> Commit:
    """Returns `commit` or, if the run goes back to an earlier version, a copy of it with a new number.

    Version numbers are never reused, because servers, waiting groups and the rollouts' admission use them.
    """
    published = streams.policy.read()
    newest = PolicyVersion(max(commits.folders(settings.adapters_dir)), commit.version.sha256)
    if published and published.version.number >= newest.number:
        newest = published.version
    if commit.version == newest:
        # Nothing is discarded. The commit records it, so that a restart with the same flag discards nothing.
        went_back_to = commit.went_back_to if settings.from_version is None else settings.from_version
        return replace(commit, went_back_to=went_back_to)
    trainer.load_on_others(commit.folder)
    copy = _commit(
        settings,
        trainer,
        number=newest.number + 1,
        ledger=commit.ledger,
        dropped=streams.counts().dropped,
        state=RunningState.of(commit.running_state),
        went_back_to=commit.version.number,
    )
    logger.warning(
        "goes back to version %d, now numbered %d: versions after %d up to %d are discarded; the groups that "
        "they were trained on stay counted as trained%s",
        commit.version.number, copy.version.number, commit.version.number, newest.number,
        "" if (commit.folder / commits.OPTIMIZER).exists() else "; Adam's moments start again from zero",
    )  # fmt: skip
    return copy


def _commit(
    settings: TrainerSettings,
    trainer: RankZeroTrainer,
    *,
    number: int,
    ledger: tuple[str, ...],
    dropped: Mapping[str, int],
    row: Mapping[str, Any] | None = None,
    state: RunningState = RunningState(),  # noqa: B008 - frozen
    went_back_to: int | None = None,
) -> Commit:
    return commits.write(
        settings.adapters_dir,
        number=number,
        files=trainer.files(),
        ledger=ledger,
        fingerprint=settings.fingerprint(),
        row=None if row is None else json_row(row),
        running_state=state.as_json(),
        dropped=dropped,
        went_back_to=went_back_to,
    )


def _adapter(settings: TrainerSettings, commit: Commit) -> Adapter:
    return Adapter(commit.version, str(commit.folder), settings.base_identity)


@contextmanager
def _servers_asleep(
    settings: TrainerSettings, publisher: Publisher, phases: dict[str, float]
) -> Iterator[None]:
    """With --sleep-inference, lets the servers sleep during the block. Times that as the phase `sleep`.

    Raises:
        Conflict, PeerFault: a server does not fall asleep. The block does not run, and the others are woken.
    """
    if not settings.sleep_inference:
        yield
        return
    try:
        with _timed(phases, "sleep"):
            publisher.sleep()
        yield
    finally:
        release_cached()
        with _timed(phases, "sleep"):
            publisher.wake_up()


@contextmanager
def _timed(phases: dict[str, float], name: str) -> Iterator[None]:
    """Adds the seconds of the block to a phase."""
    started = time.perf_counter()
    yield
    phases[name] = phases.get(name, 0.0) + time.perf_counter() - started
