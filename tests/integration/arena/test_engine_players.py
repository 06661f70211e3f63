"""Players that are real engines."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import chess
import chess.engine
import psutil
import pytest

from arena.answer_store import key_of
from arena.players.player import Player
from arena.players.spec import KINDS, make_player
from rookery.engines.player import LICHESS_LEVELS, EnginePlayer
from rookery.errors import EngineFault, SetupError
from rookery.trace import Outcome
from tests.boards import random_boards
from tests.waiting import eventually

BOARDS = list(random_boards(12, seed=3, plies=(0, 24)))


async def moves(player: Player, asked: list[chess.Board]) -> list[tuple[str, str]]:
    replies = await asyncio.gather(*(player.play(board, seed=1) for board in asked))
    assert all(reply.outcome is Outcome.LEGAL and reply.text == "" for reply in replies)
    return [(str(reply.move), str(reply.score)) for reply in replies]


@pytest.mark.stockfish
async def test_a_move_does_not_depend_on_what_was_asked_before() -> None:
    player, asked = make_player("stockfish,nodes=800"), BOARDS
    first = await moves(player, asked)
    again = await moves(player, asked[::-1])
    await player.close()
    assert again[::-1] == first
    assert player.describe()["reproducible"] is True


@pytest.mark.stockfish
async def test_the_score_is_exact_and_of_the_side_to_move() -> None:
    player = make_player("stockfish,nodes=2000")
    for fen in ("4k3/8/8/8/8/8/8/Q3K3 w - - 0 1", "4k3/8/8/8/8/8/8/q3K3 b - - 0 1"):
        reply = await player.play(chess.Board(fen), seed=0)
        assert reply.score is not None and reply.score.relative > chess.engine.Cp(300)
        assert reply.move in chess.Board(fen).legal_moves
    await player.close()
    await player.close()


@pytest.mark.stockfish
async def test_weak_stockfish_is_said_not_to_be_reproducible() -> None:
    for spec, options in [
        ("stockfish,nodes=50,skill=0", {"Skill Level": 0}),
        ("stockfish,nodes=50,elo=1500", {"UCI_LimitStrength": True, "UCI_Elo": 1500}),
    ]:
        player = make_player(spec)
        assert player.describe()["reproducible"] is False
        assert options.items() <= dict(player.describe()["options"]).items()
        assert len(await moves(player, BOARDS[:2])) == 2
        await player.close()
    with pytest.raises(SetupError, match=r"'UCI_Elo', which is from 1[0-9]+ to [0-9]+"):
        make_player("stockfish,nodes=50,elo=99")


@pytest.mark.fairy
async def test_fairy_at_the_levels_of_lichess() -> None:
    described = []
    for level in range(1, 9):
        player = make_player(f"fairy,level={level}")
        described.append((dict(player.describe()["options"])["Skill Level"], player.describe()["depth"]))
        if level < 4:
            assert len(await moves(player, BOARDS[:3])) == 3
        await player.close()
    assert described == list(LICHESS_LEVELS)


@pytest.mark.stockfish
async def test_any_engine_with_its_options(stockfish_path: str) -> None:
    player = make_player(f"uci:{stockfish_path},depth=3,option.hash=2,option.Use NNUE=false,name=old")
    assert player.name == "old"
    assert dict(player.describe()["options"]).items() >= {"Threads": 1, "Hash": 2, "Use NNUE": False}.items()
    assert len(await moves(player, BOARDS[:2])) == 2
    await player.close()
    for option, why in [
        ("Nonsense=1", "has no option 'Nonsense' to set: it has .*Hash"),
        ("MultiPV=2", "has no option 'MultiPV' to set"),
        ("Hash=much", "'much' is not a value of .*'Hash', which is from 1 to"),
    ]:
        with pytest.raises(SetupError, match=why):
            make_player(f"uci:{stockfish_path},depth=3,option.{option}")


@pytest.mark.stockfish
@pytest.mark.parametrize("kind", ["stockfish", "uci", "epsilon-random"])
def test_every_option_of_an_engine_is_in_the_key_of_its_answers(
    kind: str, stockfish_path: str, tmp_path: Path
) -> None:
    program = tmp_path / "engine"  # calls itself as the other one does
    program.write_text(f'#!/bin/sh\nexec "{stockfish_path}"\n')
    program.chmod(0o755)
    others = {
        "nodes": 2, "depth": 3, "movetime": 4, "skill": 5, "elo": 1500, "hash": 6, "share": 0.7,
        "path": program, "option.Hash": 8,
    }  # fmt: skip
    head = f"uci:{stockfish_path}" if kind == "uci" else kind
    needed = {"nodes": 1, "share": 0.5} if kind == "epsilon-random" else {"nodes": 1}
    specs = [f"uci:{program},nodes=1"] if kind == "uci" else []
    for field in KINDS[kind].model_fields.keys() - {"spec", "name", "place"}:
        name = "option.Hash" if field == "option" else field
        specs.append(",".join([head, *(f"{k}={v}" for k, v in {**needed, name: others[name]}.items())]))
    described = [make_player(spec).describe() for spec in specs]
    described.append(make_player(",".join([head, *(f"{k}={v}" for k, v in needed.items())])).describe())
    assert len({key_of(one) for one in described}) == len(described)


def test_a_program_that_is_no_engine() -> None:
    with pytest.raises(SetupError, match=r"'/bin/true' is not a UCI engine: engine process died"):
        make_player("uci:/bin/true,nodes=1")


@pytest.mark.stockfish
async def test_an_engine_that_is_too_slow_to_start(
    stockfish_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "engine"  # silent from its second start on
    program.write_text(
        f"#!/bin/sh\nmkdir '{tmp_path}/started' && exec '{stockfish_path}'\nexec cat > /dev/null\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    player = make_player("uci:~/engine,nodes=1")
    monkeypatch.setattr("rookery.engines.player.START_S", 0.5)
    with pytest.raises(EngineFault, match=r"does not start: no uciok in 0\.5 s"):
        await player.play(chess.Board(), seed=0)
    await player.close()


@pytest.mark.stockfish
async def test_epsilon_random_mixes_both() -> None:
    mixed, engine = make_player("epsilon-random,share=0.5,nodes=100"), make_player("stockfish,nodes=100")
    board = BOARDS[5]
    best = (await engine.play(board, seed=0)).move
    played = [(await mixed.play(board, seed=seed)) for seed in range(20)]
    assert any(reply.move == best and reply.score for reply in played)
    assert any(reply.score is None for reply in played)
    assert [r.move for r in played] == [(await mixed.play(board, seed=seed)).move for seed in range(20)]
    await mixed.close()
    await engine.close()


@pytest.mark.stockfish
async def test_a_killed_engine_is_a_fault_and_the_next_move_has_another() -> None:
    player = make_player("stockfish,movetime=60000")
    assert isinstance(player, EnginePlayer)
    playing = asyncio.ensure_future(player.play(chess.Board(), seed=0))
    for pid in await searching():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineFault, match="movetime=60000 over 'rnbqkbnr/"):
        await playing
    playing = asyncio.ensure_future(player.play(chess.Board(), seed=0))
    assert await searching()
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    await player.close()
    assert not engines()


async def searching() -> list[int]:
    """The engines of this process, once they have computed for longer than a start takes."""
    return await eventually(lambda: engines(cpu_s=1.0))


def engines(*, cpu_s: float = 0.0) -> list[int]:
    """The engines that this process has started and that have computed for so long."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [child.pid] if "stockfish" in child.name() and child.cpu_times().user >= cpu_s else []
    return found


ILLEGAL = """#!{python}
import sys
for line in sys.stdin:
    if line.startswith("uci") and "new" not in line: print("id name Liar\\nuciok", flush=True)
    if line.startswith("isready"): print("readyok", flush=True)
    if line.startswith("go"): print("bestmove e2e5", flush=True)
    if line.startswith("quit"): break
"""


async def test_an_engine_that_plays_an_illegal_move_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "liar"
    path.write_text(ILLEGAL.format(python=sys.executable))
    path.chmod(0o755)
    player = make_player(f"uci:{path},nodes=1")
    assert player.describe()["engine"] == "Liar"
    with pytest.raises(EngineFault, match="e2e5"):
        await player.play(chess.Board(), seed=0)
    await player.close()
