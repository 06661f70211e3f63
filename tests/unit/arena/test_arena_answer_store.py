"""The answer store: what was added is there again; an incomplete last line costs only itself."""

from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import chess
import pytest

from arena.answer_store import key_of, open_answers
from arena.answers import PlayerAnswer, answer_from_json
from arena.asking import Asker, Variant
from arena.players.player import Player, RandomPlayer
from rookery.errors import Conflict, InvalidInput
from rookery.trace import Claim, Outcome, Phase, Position, ProcessReward, Sentence, Verdict


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with open_answers(path) as store:
        store.add("a", {"move": "e2e4"})
        store.add("b", {"move": "d2d4"})
    whole = path.read_bytes()
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:cut])
        with open_answers(path) as store:
            assert store.get("a") == {"key": "a", "move": "e2e4"}
            assert store.get("b") is None
            store.add("b", {"move": "d2d4"})
        assert path.read_bytes() == whole


def test_another_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"key": "a"}\n{"move": 1}\n{"key": "b"}\n')
    with pytest.raises(InvalidInput, match=r"answers\.jsonl:2: not an answer"), open_answers(path):
        pass


def test_two_evaluations_do_not_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with open_answers(path), pytest.raises(Conflict, match="another process writes to"), open_answers(path):
        pass


def test_the_key_has_every_value_in_it() -> None:
    question = {"player": {"kind": "random"}, "seed": 0}
    assert key_of(question) != key_of({**question, "seed": 1})


CHANGED = {
    Asker: {"reward_version": "v2", "temperature": 0.5, "seed": 1},
    Variant: {"style": "pgn", "samples": 2, "ranks": True, "begin": "box", "remark": lambda _: "It rains."},
    Position: {
        "id": "b",
        "fen": chess.Board().mirror().fen(),
        "last_moves": ("e2e4",),
        "task": "A",
        "move": "d2d4",
    },
}
"""The fields that an answer depends on, with other values."""

UNUSED = {
    Asker: {"store", "reward", "concurrency", "answered", "budget", "records", "section"},
    Variant: {"name"},
    Position: {"ply", "phase", "game_id", "white_elo", "black_elo", "target", "episode"},
}


class Asked(Exception):
    """Stands for the answer."""


@pytest.mark.parametrize("kind", CHANGED)
async def test_every_field_that_an_answer_depends_on_is_in_its_key(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def recall(asker: Asker, player: Player, name: str, question: dict[str, Any], ask: object) -> None:
        raise Asked(key_of(question))

    async def key(**changed: Any) -> str:
        asker = Asker(None, None, "v1", temperature=1.0, seed=0, concurrency=1)  # type: ignore[arg-type]
        position = Position("a", chess.STARTING_FEN, 0, Phase.OPENING, "game")
        made = {Asker: asker, Variant: Variant("move", "fen"), Position: position}
        made[kind] = replace(made[kind], **changed)  # type: ignore[type-var]
        with pytest.raises(Asked) as asked:
            await made[Asker].positions(RandomPlayer(), [made[Position]], made[Variant])  # type: ignore[attr-defined]
        return str(asked.value)

    monkeypatch.setattr(Asker, "recall", recall)
    assert {field.name for field in fields(kind)} == CHANGED[kind].keys() | UNUSED[kind]
    keys = {await key(), *[await key(**{name: value}) for name, value in CHANGED[kind].items()]}
    assert len(keys) == len(CHANGED[kind]) + 1


def test_an_answer_comes_back_with_all_of_its_verdict(tmp_path: Path) -> None:
    claims = (Claim("passed pawn", 0, 9, true=False), Claim("winning", 10, 20))
    sentences = (Sentence(0, 21, read=True, claims=claims),)
    rewards = (ProcessReward(0, 4, -0.5),)
    verdict = Verdict(0.5, Outcome.LEGAL, "v", sentences=sentences, process_rewards=rewards)
    answer = PlayerAnswer("text", 3, verdict)
    with open_answers(tmp_path / "answers.jsonl") as store:
        assert answer_from_json(store.add("key", asdict(answer))) == answer
    older = asdict(answer)
    del older["verdict"]["sentences"], older["verdict"]["process_rewards"]
    assert answer_from_json(older).verdict == Verdict(0.5, Outcome.LEGAL, "v")
    with pytest.raises(InvalidInput, match=r"not an answer: verdict.outcome: .*'leggal'"):
        answer_from_json({**older, "verdict": {**older["verdict"], "outcome": "leggal"}})
