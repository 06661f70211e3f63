"""The training loop. The order of its operations ensures that every group is trained on at most once.

For each batch: optimizer step -> commit -> acknowledge -> publish -> reload. If the process is killed before
the commit, the batch is delivered again and trained on with the old weights. If it is killed after it, the
batch is found in the commit's ledger and only acknowledged. A served version is therefore always on disk.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

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
from services.trainer.training.step import RunningState, zero_variance_share
from services.trainer.versions import commits
from services.trainer.versions.commits import Commit
from services.trainer.versions.publisher import Publisher

logger = logging.getLogger(__name__)


def train(
    settings: TrainerSettings,
    policy: Policy,
    run: RunStreams,
    publisher: Publisher,
    *,
    commit: Commit | None,
    epoch: int,
    stopping: threading.Event,
    world: World = World(),  # noqa: B008 - without state
) -> None:
    """Trains from `commit`, or a new run if it is None, until `max_steps` are done or `stopping` is set.
    Raises `Conflict` if another trainer has taken over the run."""
    trainer = PolicyTrainer(settings, policy, world)
    commit = _start_from(commit, trainer, run)
    publisher.publish(_adapter(settings, commit))
    check = partial(check_group_length, policy.model)
    intake = Intake(run, settings, commit, check=check, epoch=epoch, stopping=stopping)
    with (
        track(settings.run_dir, to=settings.trackers, params=settings.model_dump(mode="json")) as tracker,
        StepReporter(settings.run_dir, tracker) as reporter,
        intake,
    ):
        reporter.recover(commit.row)
        commit = _take_steps(commit, trainer, intake, publisher=publisher, reporter=reporter)
    publisher.wait()
    logger.info("training ended at version %d", commit.version.number)


def _take_steps(
    commit: Commit, trainer: PolicyTrainer, intake: Intake, *, publisher: Publisher, reporter: StepReporter
) -> Commit:
    """The loop: batch -> step -> commit -> acknowledge -> publish. Returns the last commit."""
    settings, state = trainer.settings, RunningState.of(commit.running_state)
    attempts = Attempts(settings.run_dir, survives=trainer.world.size == 1)
    meter = SpeedMeter(trainer.policy, settings, devices=trainer.world.size)
    # Also keep the versions from which groups may still arrive: `mismatch` needs them.
    keep = max(settings.keep, settings.max_staleness + 1)
    while not settings.max_steps or commit.version.number < settings.max_steps:
        step, adapter = commit.version.number, _adapter(settings, commit)
        batch = intake.next_batch(version=step, while_waiting=partial(publisher.republish, adapter))
        if batch is None:
            break
        groups, phases = [entry.group for entry in batch], {"rollout_wait": intake.waited_s}
        train_step = partial(trainer.train_step, step=step, state=state)
        try:
            with _servers_asleep(settings, publisher, phases), meter.step(), _timed(phases, "train"):
                stats = attempts.guard(train_step, groups, undo=partial(trainer.load, commit.folder))
        except GroupsAtFault as error:
            intake.reject(batch, error.reasons)
            continue
        reach("trainer.stepped")
        share = zero_variance_share(
            groups, dropped=intake.dropped["zero_variance"], turn_rewards=settings.turn_rewards
        )
        state = state.after(groups, stats, step=step, zero_variance_share=share, settings=settings)
        figures = stats.row(zero_variance_share=share, collapsed_steps=state.collapsed_steps)
        row = describe_step(
            groups,
            figures,
            version=step + 1,
            dropped=intake.dropped,
            turn_rewards=settings.turn_rewards,
        )
        row |= meter.row(groups, tokens=stats.tokens, train_s=phases["train"])
        with _timed(phases, "commit"):
            commit = commits.write(
                settings.adapters_dir,
                number=step + 1,
                files=trainer.files(),
                ledger=(*commit.ledger, *map(ledger_entry, groups)),
                fingerprint=settings.fingerprint(),
                row=json_row(row),
                running_state=state.as_json(),
                dropped=intake.dropped_in_run,
                went_back_to=commit.went_back_to,
            )
        with _timed(phases, "settle"):
            intake.acknowledge(batch, ledger=commit.ledger)
        with _timed(phases, "publish"):
            publisher.publish(_adapter(settings, commit))
            attempts.committed()
            write_token_figures(settings, groups, stats.token_figures, version=step + 1)
        reporter.report(row, phases_s=phases, ages=ages_of(groups, version=step + 1))
        reach("trainer.reported")
        commits.prune(settings.adapters_dir, newest=step + 1, keep=keep)
    return commit


def check_resumable(settings: TrainerSettings, run: RunStreams) -> Commit | None:
    """The commit to resume from, or None for a new run. Must be called before the run is taken over. Raises
    `SetupError` if the folder is of another run, is damaged, or was made with other settings; or Redis knows
    another version, so that version numbers would restart."""
    commit = commits.to_resume(
        settings.adapters_dir, fingerprint=settings.fingerprint(), from_version=settings.from_version
    )
    published, local = run.policy.read(), commit.version if commit else None
    if published is None or (local and local.number == settings.from_version):
        return commit
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
    return commit


def _start_from(commit: Commit | None, trainer: PolicyTrainer, run: RunStreams) -> Commit:
    """Loads a commit in all processes; of a new run, version 0, which it commits.

    If the run goes back to an earlier version, returns a copy with a new number: they are never reused,
    because servers, waiting groups and the rollouts' admission use them.
    """
    settings = trainer.settings
    write = partial(commits.write, settings.adapters_dir, fingerprint=settings.fingerprint())
    if commit is None:
        commit = write(number=0, files=trainer.files(), ledger=(), running_state=RunningState().as_json())
        trainer.load(commit.folder)
        return commit
    trainer.load(commit.folder)
    logger.info("resumes from %s", commit.folder)
    if settings.from_version not in (None, commit.version.number):
        logger.warning(
            "--from-version %d: the run has gone back to it already and continues from version %d",
            settings.from_version,
            commit.version.number,
        )
    published = run.policy.read()
    newest = PolicyVersion(max(commits.folders(settings.adapters_dir)), commit.version.sha256)
    if published and published.version.number >= newest.number:
        newest = published.version
    if commit.version == newest:
        # Nothing is discarded. The commit records it, so that a restart with the same flag discards nothing.
        went_back_to = commit.went_back_to if settings.from_version is None else settings.from_version
        return replace(commit, went_back_to=went_back_to)
    copy = write(
        number=newest.number + 1,
        files=trainer.files(),
        ledger=commit.ledger,
        running_state=RunningState.of(commit.running_state).as_json(),
        dropped=run.counts().dropped,
        went_back_to=commit.version.number,
    )
    moments = (commit.folder / commits.OPTIMIZER).exists()
    logger.warning(
        "goes back to version %(old)d, now numbered %(new)d: versions after %(old)d up to %(newest)d are "
        "discarded; the groups that they were trained on stay counted as trained%(moments)s",
        {
            "old": commit.version.number,
            "new": copy.version.number,
            "newest": newest.number,
            "moments": "" if moments else "; Adam's moments start again from zero",
        },
    )
    return copy


def _adapter(settings: TrainerSettings, commit: Commit) -> Adapter:
    return Adapter(commit.version, str(commit.folder), settings.base_identity)


@contextmanager
def _servers_asleep(
    settings: TrainerSettings, publisher: Publisher, phases: dict[str, float]
) -> Iterator[None]:
    """With --sleep-inference, lets the servers sleep during the block. Times that as the phase `sleep`.
    Raises `Conflict` or `PeerFault` if a server does not fall asleep. The block does not run, and the others
    are woken."""
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
