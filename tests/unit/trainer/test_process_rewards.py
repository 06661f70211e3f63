"""Process rewards: the tokens of a candidate or a sentence learn from its own reward, the others from the
answer's."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models

from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from rookery.trace import (
    Claim,
    Completion,
    Move,
    Outcome,
    ProcessReward,
    Sentence,
    Trace,
    TraceGroup,
    Turn,
    Verdict,
)
from services.trainer.batches.micro_batches import collate
from services.trainer.batches.process_rewards import token_advantages, token_spans, tokenizer_of
from services.trainer.batches.rows import prepare_batch
from services.trainer.records.describe import describe
from tests.builders import changed
from tests.conftest import ROOT
from tests.unit.rookery.records import GROUP

MODEL = ROOT / "models/rook-small"
TOKENIZER = tokenizer_of(str(MODEL))


def answered(text: str) -> Completion:
    ids = tuple(TOKENIZER.encode(text + "<|end|>").ids)
    return Completion(text, ids, (-1.0,) * len(ids), "stop", 0)


def trace(name: str, text: str, reward: float, steps: Sequence[float] = ()) -> Trace:
    """A trace with a process reward for each of its first candidates: `<think>e2e4 d2d4 ...`."""
    rewards = tuple(ProcessReward(7 + 5 * k, 11 + 5 * k, step) for k, step in enumerate(steps))
    return Trace(name, (Turn(answered(text), Verdict(reward, Outcome.LEGAL, "v", process_rewards=rewards)),))


def group(*traces: Trace) -> TraceGroup:
    return replace(GROUP, traces=traces)


def settings(**given: object) -> TrainerSettings:
    return TrainerSettings(model=MODEL, run_dir=Path(), process_rewards=True, **given)


def advantages(made: TraceGroup, **given: object) -> list[list[float]]:
    """The advantages of each completion's tokens, from the tensors that the loss reads."""
    batch = prepare_batch([made], version=1, settings=settings(**given), averages=None)
    tensors = collate(batch.rows)
    flat = iter(tensors.advantages_N.tolist())
    return [[next(flat) for _ in each.token_ids] for row in batch.rows for each in row.completions]


GOOD = r"<think>e2e4 d2d4 g1f3</think>\boxed{e2e4}"
BAD = r"<think>h2h4 e2e4 a2a3</think>\boxed{h2h4}"


def test_spans_are_those_of_the_text() -> None:
    completion = answered(GOOD)
    spans = token_spans(TOKENIZER, completion)
    assert [GOOD[start:end] for start, end in spans] == [
        "<think>", "e2", "e4", " ", "d2", "d4", " ", "g1", "f3", "</think>", "\\boxed{", "e2", "e4", "}", "",
    ]  # fmt: skip
    assert token_spans(TOKENIZER, replace(completion, text="something else")) == []
    opened = replace(completion, token_ids=completion.token_ids[1:])  # the prompt ends with <think>
    assert token_spans(TOKENIZER, opened) == spans[1:]


def test_spans_count_special_tokens_characters_and_a_lost_space() -> None:
    within = answered("<think>e2e4 <|unk|></think>")
    assert [within.text[start:end] for start, end in token_spans(TOKENIZER, within)][4] == "<|unk|>"
    words = Tokenizer(models.WordPiece({"e4": 0, "##é": 1, "Ã": 2}, unk_token="Ã"))
    words.decoder = decoders.WordPiece()
    spaced = Completion(" e4é e4", (0, 1, 0), (-1.0,) * 3, "stop", 0)
    assert [spaced.text[start:end] for start, end in token_spans(words, spaced)] == ["e4", "é", " e4"]


def test_bytes_that_are_no_text_have_no_spans() -> None:
    """Llama's tokenizer falls back to bytes: tokenizers raises where they break off."""
    pieces = [("<unk>", 0.0), *((f"<0x{byte:02X}>", 0.0) for byte in range(256)), ("\u2581e", -1.0)]
    bytes_ = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    bytes_.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    broken = Completion("x", (1 + 0x0A, 1 + 0xF0, 257), (-1.0,) * 3, "stop", 0)
    assert token_spans(bytes_, broken) == []


def test_a_candidates_tokens_have_its_own_advantage() -> None:
    good = trace("a", GOOD, 0.5, [0.0, -0.4, -0.1])
    bad = trace("b", BAD, -0.5, [-0.2, 0.0, -0.1])
    assert advantages(group(good, bad), normalise=False) == [
        pytest.approx([0.5, 0.1, 0.1, 0.5, -0.2, -0.2, 0.5, 0.0, 0.0, *[0.5] * 6]),
        pytest.approx([-0.5, -0.1, -0.1, -0.5, 0.2, 0.2, -0.5, 0.0, 0.0, *[-0.5] * 6]),
    ]
    first, _ = advantages(group(good, bad), sigma_floor=1.0)
    assert first[:2] == pytest.approx([0.5, 0.1], abs=1e-3)


def test_candidates_are_compared_with_those_of_the_same_place() -> None:
    """The second answer is illegal, so it has no process rewards; the third names one move."""
    made = group(
        trace("a", GOOD, 0.5, [0.0, -0.4, -0.1]),
        trace("b", BAD, -1.0),
        trace("c", r"<think>d2d4</think>\boxed{d2d4}", 0.5, [-0.2]),
    )
    first, second, third = advantages(made, normalise=False)
    assert first[1:9] == pytest.approx([0.1, 0.1, 0.5, 0.0, 0.0, 0.5, 0.0, 0.0])
    assert second == pytest.approx([-1.0] * 15)
    assert third[:4] == pytest.approx([0.5, -0.1, -0.1, 0.5])


def test_a_value_s_tokens_have_the_advantage_of_its_error() -> None:
    text = r"<think>e2e4 -?</think>\boxed{e2e4}"

    def stating(name: str, reward: float, value: float) -> Trace:
        verdict = Verdict(
            reward,
            Outcome.LEGAL,
            "v",
            process_rewards=(ProcessReward(7, 11, 0.0),),
            value_rewards=(ProcessReward(12, 14, value),),
        )
        return Trace(name, (Turn(answered(text), verdict),))

    first, second = advantages(group(stating("a", 0.5, 0.9), stating("b", -0.5, 0.6)), normalise=False)
    # <think> e2 e4 " " - ? and the rest
    assert first == pytest.approx([0.5, 0.0, 0.0, 0.5, 0.15, 0.15, *[0.5] * 6])
    assert second == pytest.approx([-0.5, 0.0, 0.0, -0.5, -0.15, -0.15, *[-0.5] * 6])


def said(name: str, reward: float, *claims: Sequence[tuple[str, *tuple[bool | float | None, ...]]]) -> Trace:
    """A trace with two sentences, each with the claims given: their concept, whether true, and the weight."""
    text = r"<think>-?.</think>d2d4 -.\boxed{d2d4}"
    sentences = tuple(
        Sentence(start, end, True, tuple(Claim(concept, start, end, *more) for concept, *more in own))
        for (start, end), own in zip(((7, 10), (18, 25)), claims, strict=True)
    )
    verdict = Verdict(reward, Outcome.LEGAL, "v", move=Move("d2d4", "d4"), sentences=sentences)
    return Trace(name, (Turn(answered(text), verdict),))


def test_a_sentences_tokens_have_the_advantage_of_its_truth_but_for_the_chosen_move() -> None:
    true, false, undecided = ("attack", True), ("attack", False), ("attack", None)
    made = group(said("a", 0.5, [true], [("pin", True)]), said("b", -0.5, [false], [("pin", False)]))
    first, second = advantages(made, normalise=False)
    # <think> - ? . </think> d2 d4 " " - . and the rest
    assert first == pytest.approx([0.5, 1.0, 1.0, 1.0, *[0.5] * 3, 1.0, 1.0, 1.0, *[0.5] * 5])
    assert second == pytest.approx([-value for value in first])
    assert describe([made])["claims_true"] == 0.5
    made = group(said("a", 0.5, [true], [("pin", True)]), said("b", -0.5, [true, false], [undecided]))
    first, second = advantages(made, normalise=False)
    assert first == pytest.approx([0.5, 0.375, 0.375, 0.375, *[0.5] * 3, 0.0, 0.0, 0.0, *[0.5] * 5])
    assert second == pytest.approx([-0.5, -0.375, -0.375, -0.375, *[-0.5] * 11])
    made = group(said("a", 0.5, [true], [undecided]), said("b", -0.5, [true], []))
    assert advantages(made, normalise=False)[0][7:10] == [0.5, 0.5, 0.5], "nothing to compare"


def test_answers_that_say_the_same_share_its_reward() -> None:
    same = [said(name, 0.0, [("king shelter", True)], []) for name in "ab"]
    made = group(*same, said("c", 0.0, [("pin", True)], []))
    rewards = [row[1] for row in advantages(made, normalise=False)]
    assert rewards == pytest.approx([-1 / 6, -1 / 6, 1 / 3])
    twice = said("a", 0.0, [("king shelter", True)], [("king shelter", True)])
    made = group(twice, said("b", 0.0, [("pin", True)], [("fork", True)]))
    assert advantages(made, normalise=False)[0][1] == pytest.approx(-0.25)


def test_a_sentence_with_a_known_influence_earns_that_instead_and_shares_it() -> None:
    """0.3 shared by two sentences that truly claim a pin; what is below 0 is not shared."""

    def measured(made: Trace, *earned: float | None) -> Trace:
        pairs = zip(made.verdict.sentences, earned, strict=True)
        sentences = tuple(replace(sentence, influence=value) for sentence, value in pairs)
        return changed(made, verdict=replace(made.verdict, sentences=sentences))

    pin, attack = [("pin", True)], [("attack", True)]
    made = group(
        measured(said("a", 0.0, pin, attack), 0.3, -0.1),
        measured(said("b", 0.0, pin, attack), 0.1, -0.3),
        measured(said("c", 0.0, [("fork", False)], [("attack", None)]), -0.2, None),
    )
    first, second, third = advantages(made, normalise=False)
    assert [row[1] for row in (first, second, third)] == pytest.approx([0.15, 0.05, -0.2])
    assert [row[7] for row in (first, second, third)] == pytest.approx([0.1, -0.1, 0.0])


def test_a_true_claim_earns_what_the_term_truth_counts_it_for() -> None:
    """What a FEN says counts 0 there, and a vague claim little."""
    weights = {"side to move": 0.0, "attack": 0.8, "pin": None, "own piece": 0.0}
    traces = [said(concept, 0.0, [(concept, True, weight)], []) for concept, weight in weights.items()]
    rewards = [row[1] for row in advantages(group(*traces), normalise=False)]
    assert rewards == pytest.approx([-0.45, 0.35, 0.55, -0.45])


def test_a_candidate_within_a_sentence_keeps_its_own_advantage() -> None:
    traces = []
    for name, text, step, true in (("a", GOOD, 0.0, True), ("b", BAD, -0.4, False)):
        verdict = Verdict(
            0.0,
            Outcome.LEGAL,
            "v",
            process_rewards=(ProcessReward(12, 16, step),),
            sentences=(Sentence(7, 21, True, (Claim("candidates", 7, 21, true),)),),
        )
        traces.append(Trace(name, (Turn(answered(text), verdict),)))
    first, _ = advantages(group(*traces), normalise=False)
    assert first[1:9] == pytest.approx([1.0, 1.0, 1.0, 0.2, 0.2, 1.0, 1.0, 1.0])


def test_without_the_setting_all_tokens_have_the_answers_advantage() -> None:
    made = group(trace("a", GOOD, 0.5, [0.0]), trace("b", BAD, -0.5, [-0.2]))
    given = settings(normalise=False).model_copy(update={"process_rewards": False})
    batch = prepare_batch([made], version=1, settings=given, averages=None)
    assert collate(batch.rows).advantages_N.tolist() == [0.5] * 15 + [-0.5] * 15


@pytest.mark.parametrize("objective", ["ppo", "gspo"])
def test_they_need_an_objective_of_single_tokens(objective: str) -> None:
    flags = ["--run-dir", "d", "--model", "m", "--objective", objective]
    with pytest.raises(SetupError, match=r"process_rewards=true .*objective other than ppo or gspo"):
        TrainerSettings.parse([*flags, "--process-rewards"], prog="trainer")
    assert not TrainerSettings.parse([*flags, "--preset", "rook-small"], prog="trainer").process_rewards


@pytest.mark.parametrize("objective", ["dr-grpo", "dapo", "cispo", "reinforce"])
def test_a_preset_sets_them_for_other_objectives_too(objective: str) -> None:
    flags = ["--run-dir", "d", "--model", "m", "--objective", objective, "--preset", "rook-small"]
    assert TrainerSettings.parse(flags, prog="trainer").process_rewards


def test_the_baseline_is_that_of_the_answers_alone() -> None:
    """Without a baseline, answers are not divided by a standard deviation, and so candidates are not."""
    made = group(trace("a", GOOD, 0.5, [0.0]), trace("b", BAD, -0.5, [-0.2]))
    first, second = advantages(made, baseline="none")
    assert first[:4] == pytest.approx([0.5, 0.1, 0.1, 0.5])
    assert second[:4] == pytest.approx([-0.5, -0.1, -0.1, -0.5])


def test_a_model_needs_a_tokenizer_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SetupError, match=f"there is no {tmp_path / 'tokenizer.json'}"):
        tokenizer_of(str(tmp_path))


def test_turns_are_compared_with_those_of_the_same_role_and_number() -> None:
    """One game begins with White's turn and the other with Black's. Nor do turns of other roles share the
    reward of a true claim: Black's pin is no second one of White's."""

    def game(name: str, *roles: str, steps: Sequence[float]) -> Trace:
        turns = [
            replace(trace(name, GOOD, 0.0, [step]).turns[0], role=role)
            for role, step in zip(roles, steps, strict=True)
        ]
        return Trace(name, tuple(turns))

    made = group(
        game("a", "white", "black", "white", steps=[0.4, -0.1, 0.3]),
        game("b", "black", "white", steps=[-0.3, 0.2]),
    )
    values = token_advantages([made], [[9.0] * 5], settings=settings(normalise=False))
    assert {id: of_tokens[1] for id, of_tokens in values.items()} == pytest.approx(
        {"a": 0.1, "b.1": -0.1, "a.1": 0.1, "b": -0.1, "a.2": 0.0}
    )
    pin = said("a", 0.0, [("pin", True)], []).turns[0]
    fork = said("b", 0.0, [("fork", True)], [("fork", True)]).turns[0]
    white, black = (replace(pin, role=role) for role in ("white", "black"))
    made = group(Trace("a", (white,)), Trace("b", (black,)), Trace("c", (replace(fork, role="white"),)))
    values = token_advantages([made], [[9.0] * 3], settings=settings(normalise=False))
    assert {id: of_tokens[1] for id, of_tokens in values.items()} == pytest.approx(
        {"a": 0.25, "b": 0.0, "c": -0.25}
    )


def test_the_mean_is_reported() -> None:
    made = group(trace("a", GOOD, 0.5, [0.0, -0.4]), trace("b", BAD, -0.5, [-0.2]))
    assert describe([made])["process_reward"] == pytest.approx(-0.2)
    assert "process_reward" not in describe([group(trace("a", GOOD, 0.5))])
