"""Runs one evaluation, from settings to report files, with progress bars in the terminal."""

import hashlib
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from arena.answer_store import ANSWERS_FILE, open_answers
from arena.asking import Asker, BestMover, reward_version_of, style_of
from arena.pieces import BEST, RANDOM
from arena.players.model import GUESS, GuessingPlayer, ModelPlayer
from arena.players.player import Player, RandomPlayer
from arena.players.spec import make_player
from arena.positions import Chosen, choose, fetch, read_jsonl, same_question
from arena.report import PAGE_FILE, EvaluationResult, write
from arena.sections.chessqa import ChessQA
from arena.sections.influence import Influence
from arena.sections.matches import match_sections
from arena.sections.positions import MOVE, UNREASONED, Positions
from arena.sections.puzzles import Puzzles
from arena.sections.reasoning import reasoning_section
from arena.sections.suites import Suite
from arena.tables import Section, terminal_table
from rookery.clients import RewardClient
from rookery.config.arena import OF_POSITIONS, EvaluateSettings, QuestionSettings
from rookery.errors import InvalidInput
from rookery.fen import FenReport
from rookery.masking import mask_setting
from rookery.terminal import SafeConsole

logger = logging.getLogger(__name__)

REWARD_TIMEOUT_S = 120.0

Source: TypeAlias = Positions | Influence | Puzzles | Suite | ChessQA
"""What asks a player questions."""


async def run(settings: EvaluateSettings, *, console: Console | None = None) -> dict[str, Any]:
    """Evaluates, writes the report and returns the content of report.json; {} if it only asks. Raises
    `InvalidInput` if a player, the positions, the puzzles or the suites cannot be used; further ones as
    `choose` and `Asker.positions`."""
    console = console or SafeConsole()
    chosen = await held_out(settings) if settings.asks & OF_POSITIONS else None
    sources = _sources(settings, chosen)
    players = [make_player(spec) for spec in settings.players]
    if len({player.name for player in players}) < len(players):
        raise InvalidInput(
            f"two players have the same name: {[p.name for p in players]}: add name= to a spec"
        )
    async with AsyncExitStack() as stack:
        for player in players:
            stack.push_async_callback(player.close)
        store = stack.enter_context(open_answers(settings.out / ANSWERS_FILE))
        reward = await stack.enter_async_context(
            RewardClient(settings.reward_target, access=settings.access, timeout_s=REWARD_TIMEOUT_S)
        )
        asker = Asker(
            store=store,
            reward=reward,
            reward_version=await reward_version_of(reward) if chosen else "",
            temperature=settings.temperature,
            seed=settings.seed,
            concurrency=settings.concurrency,
        )
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=console) as progress:
            answers = [await _ask(source, asker, players, progress) for source in sources]
    if settings.ask_only:
        return {}
    with console.status("resampling"):
        sections = _section_list(settings, list(zip(sources, answers, strict=True)), players)
    by_variant = answers[0] if chosen else {}
    evaluation = EvaluationResult(
        settings=settings,
        chosen=chosen,
        players={player.name: player.describe() for player in players},
        reward_version=asker.reward_version,
        sections=sections,
        answers={name: variants[MOVE] for name, variants in by_variant.items()},
    )
    report = write(evaluation, settings.out)
    for section in sections:
        console.print(
            terminal_table(section, players=[player.name for player in players], width=console.width)
        )
    console.print(f"report: {settings.out / PAGE_FILE}", soft_wrap=True, highlight=False)
    return report


async def held_out(settings: QuestionSettings) -> Chosen:
    """The positions that the settings name, from a file or a data service. Raises as `choose` and `fetch`."""
    excluded_positions = read_jsonl(settings.exclude) if settings.exclude else []
    report = FenReport()
    if settings.positions is not None:
        pool = read_jsonl(settings.positions, report=report)
        source, digest = settings.positions.name, hashlib.sha256(settings.positions.read_bytes()).hexdigest()
    else:
        url = str(settings.data_url)
        # Twice as many as needed, because duplicates and excluded positions are removed.
        pool = await fetch(url, count=2 * settings.count, seed=settings.seed, access=settings.access)
        source, digest = mask_setting(url), None
    _log_report(source, report)
    questions = {same_question(position.fen) for position in excluded_positions}
    excluded = sum(same_question(position.fen) in questions for position in pool) if excluded_positions else 0
    if settings.exclude:
        logger.warning("%s: left out because %s has them: %d", source, settings.exclude.name, excluded)
    positions = choose(pool, count=settings.count, seed=settings.seed, seen=excluded_positions)
    return Chosen(tuple(positions), source, digest, excluded, report)


def _log_report(name: str, report: FenReport) -> None:
    for line in report.lines(name):
        logger.warning("%s", line)


def _sources(settings: EvaluateSettings, chosen: Chosen | None) -> list[Source]:
    sources: list[Source] = _of_positions(settings, chosen) if chosen else []
    if "puzzles" in settings.asks:
        count, seed = settings.puzzle_count, settings.seed
        sources += [Puzzles.read(path, count=count, seed=seed) for path in settings.puzzles]
    if "suites" in settings.asks:
        sources += [Suite.read(path, seed=settings.seed) for path in settings.suites]
    if "chessqa" in settings.asks:
        count, context = settings.chessqa_count, settings.chessqa_context
        sources.append(ChessQA.read(settings.chessqa, count=count, context=context, seed=settings.seed))
    for source in sources:
        if not isinstance(source, Positions | Influence):
            _log_report(source.name, source.report)
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        raise InvalidInput(f"two files have the same name: {', '.join(names)}")
    return sources


def _of_positions(settings: EvaluateSettings, chosen: Chosen) -> list[Source]:
    positions, samples, seed = chosen.positions, settings.samples, settings.seed
    unreasoned = "reasoning" in settings.asks
    asked: list[Source] = [Positions(positions, samples, settings.styles, seed, unreasoned=unreasoned)]
    return [*asked, Influence(positions, samples, seed)] if "influence" in settings.asks else asked


async def _ask(source: Source, asker: Asker, players: Sequence[Player], progress: Progress) -> dict[str, Any]:
    """The answers by player. To positions, the references answer too."""
    answers = {}
    references: list[Player] = [RandomPlayer(RANDOM), BestMover(BEST, asker.reward)]
    lines = [p for p in players if isinstance(p, ModelPlayer) and p.style == "rookworld"]
    references += [GuessingPlayer(**{**vars(p), "name": GUESS, "source": GUESS}) for p in lines[:1]]
    for player in [*players, *(references if isinstance(source, Positions) else [])]:
        bar = progress.add_task(f"{source.name}: {player.name}", total=source.count(player))
        asker.answered = partial(progress.advance, bar)
        answers[player.name] = await source.ask(asker, player)
    return answers


def _section_list(
    settings: EvaluateSettings, answered: Sequence[tuple[Source, dict[str, Any]]], players: Sequence[Player]
) -> list[Section]:
    names, sections = [player.name for player in players], []
    for source, answers in answered:
        if source.name in settings.asks or not isinstance(source, Positions):
            sections.append(source.section(answers, players=names))
        if isinstance(source, Positions) and "reasoning" in settings.asks:
            models = {player.name: answers[player.name] for player in players if style_of(player)}
            sections.append(
                reasoning_section(
                    {name: variants[MOVE] for name, variants in models.items()},
                    without={n: by[UNREASONED] for n, by in models.items() if UNREASONED in by},
                    players=names,
                    seed=settings.seed,
                )
            )
    if "matches" in settings.asks:
        sections += match_sections(settings.out)
    return [section for section in sections if section.tables]
