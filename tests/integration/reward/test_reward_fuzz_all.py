"""100,000 completions and 10,000 FENs nobody should write, and a real engine on the FENs that pass.

The bounds are CPU, not time: about ten seconds of one core.
"""

import io
import json
import re
import subprocess
import unicodedata
from collections import Counter
from pathlib import Path

import chess
import pytest
from backports import zstd

from rookery.answers import extract
from rookery.errors import InvalidInput
from rookery.notation import read_move
from rookery.trace import Outcome, ScoreItem, Verdict
from services.reward import LocalScorer
from services.reward.position import JudgedPosition, read_position
from tests.babble import completions, fens
from tests.conftest import NEIGHBOURS

COMPLETIONS = 100_000
FENS = 10_000

# What Stockfish's parser expects: anything else may crash it.
ENGINE_FEN = re.compile(
    r"(?:[1-8pnbrqkPNBRQK]{1,8}/){7}[1-8pnbrqkPNBRQK]{1,8} w (?:-|[KQkqA-Ha-h]{1,4}) (?:-|[a-h]6) \d{1,3} 1"
)


def transcripts() -> list[str]:
    """Pieces of what models wrote, where the shared data is at hand."""
    place, _ = NEIGHBOURS["shared_data"]()
    if place is None:
        return []
    with (Path(place) / "llm_outputs_langchess" / "compact" / "predictmove_dev.jsonl.zst").open("rb") as file:
        lines = io.TextIOWrapper(zstd.ZstdFile(file), "utf-8")
        return [json.loads(line)["response"][-400:] for _, line in zip(range(200), lines, strict=False)]


def test_a_hundred_thousand_completions() -> None:
    outcomes = Counter()
    for number, (fen, completion) in enumerate(
        completions(seed=3, count=COMPLETIONS, fragments=transcripts())
    ):
        board = read_position(fen).board
        answer = extract(completion, truncated=number % 7 == 0)
        if answer.missing:
            outcomes[answer.missing] += 1
            continue
        reading = read_move(answer.text, board)
        outcomes[reading.outcome] += 1
        assert (reading.outcome is Outcome.LEGAL) == (reading.move is not None), completion
        if reading.move:
            assert board.is_legal(reading.move), completion
            letters = re.sub(r"[^a-h1-8]", "", unicodedata.normalize("NFKC", answer.text))
            said = chess.square_name(reading.move.to_square) in letters
            assert said or board.is_castling(reading.move), completion
    print(f"\n{dict(outcomes)}")
    assert set(outcomes) == set(Outcome)
    assert min(outcomes.values()) > 100


@pytest.fixture(scope="module")
def accepted() -> list[JudgedPosition]:
    positions = {}
    for fen in fens(seed=4, count=FENS):
        try:
            position = read_position(fen)
        except InvalidInput as error:
            assert repr(fen[:60])[:-1] in str(error)
        else:
            positions[position.key] = position
    return list(positions.values())


def test_ten_thousand_fens(accepted: list[JudgedPosition]) -> None:
    print(f"\n{len(accepted)} positions, {sum(position.chess960 for position in accepted)} of Chess960")
    assert len(accepted) > 500
    for position in accepted:
        assert ENGINE_FEN.fullmatch(position.key)
        asked = chess.Board(position.key, chess960=position.chess960)
        assert asked.is_valid() and any(asked.legal_moves)
        for move in position.board.legal_moves:
            assert position.from_engine(position.to_engine(move)) == move
            assert position.legal_move(move).move.uci == move.uci()


@pytest.mark.stockfish
@pytest.mark.parametrize("chess960", [False, True])
def test_no_accepted_position_kills_a_bare_engine(
    accepted: list[JudgedPosition], stockfish_path: str, chess960: bool
) -> None:
    chosen = [position for position in accepted if position.chess960 is chess960][:400]
    searches = "".join(f"position fen {position.key}\ngo depth 4\n" for position in chosen)
    options = f"setoption name UCI_Chess960 value {str(chess960).lower()}\nsetoption name Hash value 1\n"
    engine = subprocess.run(
        [stockfish_path],
        input=f"{options}{searches}isready\nquit\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    answers = re.findall(r"^bestmove (\w+)", engine.stdout, re.MULTILINE)
    assert len(answers) == len(chosen) > 20
    for position, answer in zip(chosen, answers, strict=True):
        assert position.from_engine(answer) in position.board.legal_moves, position.key


@pytest.mark.stockfish
def test_every_accepted_position_is_judged(accepted: list[JudgedPosition], scorer: LocalScorer) -> None:
    chosen = accepted[::2][:300]
    moves = [max(position.board.legal_moves, key=lambda move: move.uci()) for position in chosen]
    items = [ScoreItem(p.board.fen(), rf"\boxed{{{m.uci()}}}") for p, m in zip(chosen, moves, strict=True)]
    known = ScoreItem(chess.STARTING_FEN, r"\boxed{e4}")
    before = scorer.score(known)
    for item, verdict in zip(items, scorer.score_batch(items), strict=True):
        assert isinstance(verdict, Verdict), (item, verdict)
        assert verdict.outcome is Outcome.LEGAL, item
        assert -1.0 <= verdict.reward <= 0.0, item
    assert scorer.score(known) == before
