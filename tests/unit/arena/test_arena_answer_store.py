"""The answer store: what was added is there again; an incomplete last line costs only itself."""

from dataclasses import asdict
from pathlib import Path

import pytest

from rookery.errors import Conflict, InvalidInput
from rookery.trace import Claim, Outcome, ProcessReward, Sentence, Verdict
from services.arena.answer_store import key_of, open_answers
from services.arena.answers import Answer, answer_from_json


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


def test_an_answer_comes_back_with_all_of_its_verdict(tmp_path: Path) -> None:
    claims = (Claim("passed pawn", 0, 9, true=False), Claim("winning", 10, 20))
    sentences = (Sentence(0, 21, read=True, claims=claims),)
    rewards = (ProcessReward(0, 4, -0.5),)
    verdict = Verdict(0.5, Outcome.LEGAL, "v", sentences=sentences, process_rewards=rewards)
    answer = Answer("text", 3, verdict)
    with open_answers(tmp_path / "answers.jsonl") as store:
        assert answer_from_json(store.add("key", asdict(answer))) == answer
    older = asdict(answer)
    del older["verdict"]["sentences"], older["verdict"]["process_rewards"]
    assert answer_from_json(older).verdict == Verdict(0.5, Outcome.LEGAL, "v")
    with pytest.raises(InvalidInput, match=r"not an answer: verdict.outcome: .*'leggal'"):
        answer_from_json({**older, "verdict": {**older["verdict"], "outcome": "leggal"}})
