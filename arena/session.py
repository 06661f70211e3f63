"""Runs one evaluation, from settings to report files, with progress bars in the terminal."""

import hashlib
import io
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from arena.answer_store import ANSWERS_FILE, AnswerStore, open_answers, read_answers, tokens_of
from arena.asking import TERMS, Asker, BestMover, Budget, reward_version_of, style_of
from arena.pieces import BEST, RANDOM
from arena.players.model import GUESS, GuessingPlayer, ModelPlayer
from arena.players.player import Player, RandomPlayer
from arena.players.spec import make_player
from arena.positions import Chosen, choose, fetch, read_jsonl, same_question
from arena.report import PAGE_FILE, EvaluationResult, report_json, write
from arena.sections.against import Published, against, published
from arena.sections.brittleness import Brittleness
from arena.sections.chessqa import ChessQA
from arena.sections.contamination import contamination_sections
from arena.sections.influence import Influence
from arena.sections.matches import match_sections
from arena.sections.positions import MOVE, UNREASONED, PositionQuestions
from arena.sections.puzzles import Puzzles
from arena.sections.reasoning import reasoning_section
from arena.sections.suites import Suite
from arena.tables import Section, terminal_table
from rookery.clients import RewardClient
from rookery.config.arena import ASKS_POSITIONS, ArenaEvaluateSettings, QuestionSettings
from rookery.errors import InvalidInput
from rookery.fen import FenReport
from rookery.masking import mask_setting
from rookery.terminal import SafeConsole

logger = logging.getLogger(__name__)

REWARD_TIMEOUT_S = 120.0

Source: TypeAlias = PositionQuestions | Influence | Brittleness | Puzzles | Suite | ChessQA
"""What asks a player questions; `names` has that of each, as the records of answers have it."""


async def run(settings: ArenaEvaluateSettings, *, console: Console | None = None) -> dict[str, Any]:
    """Evaluates, writes the report and returns the content of report.json; {} if it only asks, or is a dry
    run. Raises `InvalidInput` if a player, the positions, the puzzles or the suites cannot be used; further
    ones as `choose`, `Asker.positions` and `Budget.check`."""
    console = console or SafeConsole()
    chosen = await held_out(settings) if settings.asks & ASKS_POSITIONS else None
    sources = _sources(settings, chosen)
    references = _references(settings.against)
    players = [make_player(spec) for spec in settings.players]
    _require_distinct([player.name for player in players], "two players", hint=": add name= to a spec")
    async with AsyncExitStack() as stack:
        for player in players:
            stack.push_async_callback(player.close)
        if settings.dry_run:  # which writes nothing
            store = AnswerStore(io.BytesIO(), read_answers(settings.out / ANSWERS_FILE))
            console.print(_plan(settings, sources, players, store))
            return {}
        store = stack.enter_context(open_answers(settings.out / ANSWERS_FILE))
        await _check_budget(settings, players)
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
            budget=Budget(settings.budget_minutes and 60 * settings.budget_minutes, settings.budget_tokens),
        )
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=console) as progress:
            answers = [await _ask(source, asker, players, progress) for source in sources]
    if settings.ask_only:
        return {}
    with console.status("resampling"):
        sections = _section_list(settings, list(zip(sources, answers, strict=True)), players)
    by_variant = answers[0] if sources and isinstance(sources[0], PositionQuestions) else {}
    evaluation = EvaluationResult(
        settings=settings,
        chosen=chosen,
        players={player.name: player.describe() for player in players},
        reward_version=asker.reward_version,
        records=asker.records,
        sections=sections,
        answers={name: variants[MOVE] for name, variants in by_variant.items()},
    )
    return _report(evaluation, references, console)


def _report(
    evaluation: EvaluationResult, references: Sequence[Published], console: Console
) -> dict[str, Any]:
    """Writes the report, compared with the published ones, and prints it."""
    if references:
        facts, sections = report_json(evaluation), evaluation.sections
        others = [against(reference, sections, report=facts) for reference in references]
        evaluation = replace(evaluation, sections=[*sections, *others])
    report = write(evaluation, evaluation.settings.out)
    for line in report["summary"]:
        console.print(line, highlight=False)
    for section in filter(lambda section: section.tables, evaluation.sections):
        console.print(terminal_table(section, players=list(evaluation.players), width=console.width))
    console.print(f"report: {evaluation.settings.out / PAGE_FILE}", soft_wrap=True, highlight=False)
    return report


def _require_distinct(names: Sequence[str], what: str, *, hint: str = "") -> None:
    if len(set(names)) < len(names):
        raise InvalidInput(f"{what} have the same name: {', '.join(map(repr, names))}{hint}")


async def _check_budget(settings: ArenaEvaluateSettings, players: Sequence[Player]) -> None:
    for player in players if settings.budget_tokens else ():
        if isinstance(player, ModelPlayer) and not await player.client.tells_tokens():
            raise InvalidInput(
                f"--budget-tokens: the server of {player.name} is not vLLM, so its answers have no token "
                "count: use --budget-minutes"
            )


def _references(paths: Sequence[Path]) -> list[Published]:
    references = [published(path) for path in paths]
    _require_distinct([reference.name for reference in references], "--against: two")
    return references


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


def _sources(settings: ArenaEvaluateSettings, chosen: Chosen | None) -> list[Source]:
    asks, seed, sources = settings.asks, settings.seed, list[Source]()
    if chosen and asks & {"positions", "reasoning"}:
        unreasoned = "reasoning" in asks
        sources.append(
            PositionQuestions(
                chosen.positions, settings.samples, settings.styles, seed, unreasoned=unreasoned
            )
        )
    if chosen and "influence" in asks:
        sources.append(Influence(chosen.positions, settings.samples, seed))
    if chosen and "brittleness" in asks:
        sources.append(Brittleness(chosen.positions, seed))
    for path in settings.puzzles if "puzzles" in asks else ():
        sources.append(Puzzles.read(path, count=settings.puzzle_count, seed=seed))
    for path in settings.suites if "suites" in asks else ():
        sources.append(Suite.read(path, seed=seed))
    if "chessqa" in asks:
        count, context = settings.chessqa_count, settings.chessqa_context
        protocol = settings.chessqa_protocol
        sources.append(
            ChessQA.read(settings.chessqa, count=count, context=context, seed=seed, protocol=protocol)
        )
    _check(sources)
    return sources


def _check(sources: Sequence[Source]) -> None:
    for source in sources:
        if not isinstance(source, PositionQuestions | Influence | Brittleness):
            _log_report(source.name, source.report)
    _require_distinct([source.name for source in sources], "two files")


def _plan(
    settings: ArenaEvaluateSettings, sources: Sequence[Source], players: Sequence[Player], store: AnswerStore
) -> RichTable:
    """What each player would be asked. Tokens and time are those of its answers in the folder, for as many
    questions; without answers, tokens are the most that there may be."""
    columns = ("questions", "answered", "tokens", "time")
    table = RichTable(
        "", *columns, title="The questions of this evaluation", box=SIMPLE_HEAD, title_justify="left"
    )
    terms = {name: getattr(settings, name) for name in TERMS}
    for player in players:
        names = Counter(chain.from_iterable(source.names(player) for source in sources))
        questions, records = names.total(), []
        # A folder may have the answers of other sections, seeds and temperatures, too.
        for record in store.of(player.name):
            same = all(record.get(name, value) == value for name, value in terms.items())
            if same and names[name := record.get("question", "")]:
                names[name] -= 1
                records.append(record)
        left = questions - len(records)
        if records:
            tokens = f"{left * sum(map(tokens_of, records)) / len(records):,.0f}"
            seconds = fmean(record.get("seconds", 0.0) for record in records)
            time = f"{left * seconds / settings.concurrency / 60:.1f} min"
        else:
            most = player.sampling.max_tokens if isinstance(player, ModelPlayer) else 0
            samples = settings.samples * len(
                next((s.chosen for s in sources if isinstance(s, PositionQuestions)), ())
            )
            tokens = f"at most {most * (questions + samples):,}" if most else "0"
            time = "unknown"
        table.add_row(player.name, f"{questions:,}", f"{len(records):,}", tokens, time)
    return table


async def _ask(source: Source, asker: Asker, players: Sequence[Player], progress: Progress) -> dict[str, Any]:
    """The answers by player. To positions, the references answer too."""
    answers = {}
    references: list[Player] = [RandomPlayer(RANDOM), BestMover(BEST, asker.reward)]
    lines = [p for p in players if isinstance(p, ModelPlayer) and p.style == "rookworld"]
    references += [GuessingPlayer(**{**vars(p), "name": GUESS, "source": GUESS}) for p in lines[:1]]
    for player in [*players, *(references if isinstance(source, PositionQuestions | Brittleness) else [])]:
        bar = progress.add_task(f"{source.name}: {player.name}", total=len(source.names(player)))
        asker.answered, asker.section = partial(progress.advance, bar), source.name
        answers[player.name] = await source.ask(asker, player)
    return answers


def _section_list(
    settings: ArenaEvaluateSettings,
    answered: Sequence[tuple[Source, dict[str, Any]]],
    players: Sequence[Player],
) -> list[Section]:
    names, sections = [player.name for player in players], []
    for source, answers in answered:
        if source.name in settings.asks or not isinstance(source, PositionQuestions):
            sections.append(source.section(answers, players=names))
        if isinstance(source, PositionQuestions) and "reasoning" in settings.asks:
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
        sections += match_sections(settings.out, {player.name: player.describe() for player in players})
    if "contamination" in settings.asks:
        sections += contamination_sections(settings.out)
    return [section for section in sections if section.tables]
