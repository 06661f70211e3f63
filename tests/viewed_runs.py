"""Runs on a disk as the viewer finds them: archive, by the archiver's own writer, metrics, commits."""

import asyncio
import gzip
import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import chess

from chess_datasets.store.folders import open_folder
from chess_datasets.traces.archive import TraceArchive
from rookery.episodes import environment
from rookery.prompt import render
from rookery.trace import (
    Completion,
    EngineStamp,
    Evaluation,
    Message,
    Move,
    Outcome,
    Phase,
    PolicyVersion,
    Position,
    Prompt,
    Sampling,
    Trace,
    TraceGroup,
    Turn,
    Verdict,
)

START_MS = 1763721014000
SIZE, BATCH, STEPS = 4, 4, 8
MODEL = "models/rook-tiny"
REWARD_VERSION = "delta-1/parser-4/lichess-k0.00368208/nodes-1000/hash-1/stockfish-15.1"

SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
HOSTILE = {
    "script": SCRIPT,
    "override": "a\u202eb\u2066c\u0007\u200bd\ufeff",
    "surrogate": "half a pair: \ufffd \U0001f600",
    "megabyte": "x" * (1 << 20),
    "squares": "h1h1 a1-a1 \\boxed{h1h1}",
    "prose": "White has a passed pawn on e5. The knight on f3 attacks the pawn on e5. It is raining.",
}


@cache
def groups(run: str, *, seed: int, count: int = BATCH * (STEPS + 1)) -> tuple[TraceGroup, ...]:
    """Groups on the positions of one game; answers depend on the seed. The last batch was not trained on."""
    order, answers, board = random.Random(0), random.Random(seed), chess.Board()
    made = []
    for number in range(count):
        board.push(order.choice([move for move in board.legal_moves if not board.gives_check(move)]))
        made.append(_group(run, number, board, answers))
    return tuple(made)


def _group(run: str, number: int, board: chess.Board, rng: random.Random) -> TraceGroup:
    id, fen, version = f"{run}-{number:03d}", board.fen(), max(0, number // BATCH - 1)
    phase = Phase.OPENING if number < 20 else Phase.MIDDLEGAME
    return TraceGroup(
        id=id,
        run=run,
        position=Position(f"game:1:{number}", fen, board.ply(), phase, "game"),
        prompt=Prompt("fen", (Message("user", f"Position (FEN): {fen}"),), fen),
        prompt_token_ids=(1, 2, 3),
        policy=PolicyVersion(version, f"{version:064x}"),
        base_model=f"{MODEL}@sha256:00",
        sampling=Sampling(),
        traces=tuple(_trace(f"{id}-{i}", board, rng) for i in range(SIZE)),
        created_at=START_MS / 1000 + number,
        generation_s=0.5,
        reward_s=0.1,
    )


def _trace(id: str, board: chess.Board, rng: random.Random) -> Trace:
    moves = sorted(board.legal_moves, key=chess.Move.uci)
    named = [rng.choice(moves) for _ in range(3)]
    text = f"<think>{' '.join(move.uci() for move in named)}</think>\\boxed{{{named[0].uci()}}}"
    tokens = rng.randrange(8, 16)
    completion = Completion(
        text, tuple(range(5, 5 + tokens)), tuple(-rng.expovariate(2.0) for _ in range(tokens)), "stop", 1
    )
    best = Move(moves[0].uci(), board.san(moves[0]))
    if rng.random() < 0.2:
        return Trace(id, (Turn(completion, verdict_without_move(best)),))
    regret = rng.choice([0.0, 0.05, 0.2, 0.4])
    move = Move(named[0].uci(), board.san(named[0]))
    return Trace(
        id,
        (
            Turn(
                completion,
                Verdict(
                    0.0 - regret,
                    Outcome.LEGAL,
                    REWARD_VERSION,
                    move,
                    best,
                    0.6,
                    0.6 - regret,
                    regret,
                    Evaluation(cp=110),
                    Evaluation(cp=10),
                    {"delta": 0.0 - regret},
                    EngineStamp("Stockfish 15.1", 2000),
                ),
            ),
        ),
    )


def verdict_without_move(best: Move) -> Verdict:
    return Verdict(
        -1.2, Outcome.ILLEGAL, REWARD_VERSION, best=best, win_before=0.6, components={"penalty": -1.2}
    )


def hostile_group(run: str) -> TraceGroup:
    """A group whose answers are texts that must do no harm, and whose times are no numbers."""
    fen = "rnbqkbnr/pppp1ppp/8/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 0 3"
    traces = tuple(
        Trace(
            f"hostile-{name}",
            (
                Turn(
                    Completion(f"<think>{text}</think>", (5, 6), (-0.1, -2.0), "stop", 1),
                    verdict_without_move(Move("f3e5", "Nxe5")),
                ),
            ),
        )
        for name, text in HOSTILE.items()
    )
    (like,) = groups(run, seed=9, count=1)
    fields = {name: getattr(like, name) for name in like.__dataclass_fields__}
    position = Position("hostile:1:1", fen, 4, Phase.OPENING, "hostile")
    prompt = Prompt("fen", (Message("user", SCRIPT),), fen)
    fields |= {"id": "hostile", "position": position, "prompt": prompt, "traces": traces}
    return TraceGroup(**{**fields, "generation_s": math.nan, "reward_s": math.inf})


def write_run(runs: Path, name: str, *, seed: int, more: tuple[TraceGroup, ...] = ()) -> list[TraceGroup]:
    """Writes a run of `STEPS` steps with all of its files. Returns its groups."""
    made = [*groups(name, seed=seed), *more]
    add_file(runs, name, made[:20], first=0)
    add_file(runs, name, made[20:], first=20)
    folder = runs / name
    lines = [json.dumps(_step(number, made)) for number in range(1, STEPS + 1)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "ratios").mkdir()
    for number in range(1, STEPS + 1):
        _write_ratios(
            folder / "ratios" / f"policy-v{number:06d}.jsonl.gz", made[BATCH * (number - 1) :][:BATCH]
        )
    state = folder / "adapters" / f"policy-v{STEPS:06d}"
    state.mkdir(parents=True)
    ledger = [f"{group.id}:00" for group in made[: BATCH * STEPS]]
    (state / "state.json").write_text(
        json.dumps({"number": STEPS, "ledger": ledger, "dropped": {"stale": 1}})
    )
    (folder / "trainer.toml").write_text('[trainer]\nbaseline = "group-mean"\nnormalise = true\n')
    settings = {"max_tokens": 32, "redis_url": "redis://:secret@localhost/0", "set": ["trainer.x=secret"]}
    (folder / "settings.json").write_text(json.dumps(settings))
    return made


def _write_ratios(path: Path, batch: list[TraceGroup]) -> None:
    """As the trainer does: ratios near 1, and advantages that rise. An answer without loss has none."""
    with gzip.open(path, "wt") as file:
        for group in batch:
            rng = random.Random(group.id)
            ratios = [
                [round(rng.lognormvariate(0, 0.3), 4) for _ in trace.completion.token_ids]
                for trace in group.traces
            ]
            advantages = [[place / 100 - 0.02 for place, _ in enumerate(own)] for own in ratios]
            figures = {"ratios": [*ratios[:-1], None], "advantages": [*advantages[:-1], None]}
            file.write(json.dumps({"group": group.id, **figures}) + "\n")


def add_file(runs: Path, name: str, made: Sequence[TraceGroup], *, first: int) -> None:
    """Writes one more file of the run's archive, with entries from number `first` on."""
    pairs = [(f"{START_MS + first + n}-0", group) for n, group in enumerate(made)]
    archive = TraceArchive(open_folder(runs / name / "archive"))
    archive.write(name, pairs, first=pairs[0][0], last=pairs[-1][0])


def _step(number: int, made: list[TraceGroup]) -> dict[str, float]:
    batch = made[BATCH * (number - 1) : BATCH * number]
    rewards = [reward for group in batch for reward in group.rewards]
    return {
        "time": START_MS / 1000 + BATCH * number + BATCH - 0.5,
        "step": number,
        "version": number,
        "groups": len(batch),
        "reward": sum(rewards) / len(rewards),
        "legal_rate": 0.8,
        "box_rate": 1.0,
        "regret": 0.1,
        "entropy": 1.0 / number,
        "zero_variance_share": 0.1,
        "step_s": 1.0,
    }


def game_group(
    run: str, *, fen: str = chess.STARTING_FEN, plies: int = 12, colours: str = "mover"
) -> TraceGroup:
    """Two games of the policy, with real replies. Its moves are random, and the second game ends with an
    illegal one. With `colours=both`, its opponent begins the second game."""
    kind = f"game,plies={plies},colours={colours}"
    position = Position("game:2:0", fen, 0, Phase.OPENING, "game", episode=kind)
    (like,) = groups(run, seed=9, count=1)
    rng = random.Random(2)
    games = [
        asyncio.run(_game(position, rng, seed=seed, illegal_turn=illegal_turn))
        for seed, illegal_turn in enumerate((None, 2))
    ]
    return replace(
        like,
        id="games",
        position=position,
        prompt=render(position, style="mover-squares"),
        traces=tuple(Trace(f"games-{n}", turns) for n, turns in enumerate(games)),
    )


async def _game(
    position: Position, rng: random.Random, *, seed: int, illegal_turn: int | None
) -> tuple[Turn, ...]:
    episode, turns = environment(position.episode, slot=seed), list[Turn]()
    prompt: Prompt | None = episode.reset(position, style="mover-squares", seed=seed, judge=_no_judge)
    own_prompt = await episode.begin()
    prompt = own_prompt or prompt
    while prompt:
        answer = _trace("", chess.Board(prompt.fen), rng).turns[0]
        while (answer.verdict is not None and answer.verdict.move is None) != (len(turns) == illegal_turn):
            answer = _trace("", chess.Board(prompt.fen), rng).turns[0]
        turn = replace(answer, prompt=prompt if turns else own_prompt, role=episode.role)
        step = await episode.step(turn)
        turns.append(replace(turn, observation=step.observation, rewards=step.rewards))
        prompt = step.prompt
    return tuple(turns)


async def _no_judge(fen: str, response: str) -> Verdict:
    raise AssertionError("a random opponent asks no engine")
