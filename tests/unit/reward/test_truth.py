"""What reasoning earns by the truth of its claims, and what earns nothing."""

import random
import time
from collections.abc import Sequence

import chess
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commentary.concept import CONCEPTS
from rookery.errors import InvalidInput
from rookery.trace import Effect
from services.reward.truth import (
    GIVEN,
    READ_CHARS,
    influence_of,
    read_reasoning,
    reader_id,
    sentences_of,
    truth_of,
)

FEN = "rnb1kbnr/pppp1ppp/8/4p1q1/3PP3/5N2/PPP2PPP/RNBQKB1R w KQkq - 0 4"
TRUE = (  # in falling order of their weights in the reward
    "Material is level.",
    "The knight on f3 attacks the queen on g5.",
    "The knight on f3 attacks the pawn on e5.",
    "The pawn on d4 attacks the pawn on e5.",
)
FALSE = (
    "White is a rook up.",
    "Black is a rook up.",
    "White has a passed pawn on e4.",
    "Black's king is in check.",
)
UNREAD = ("I like it!", "The position smells of tactics somehow.")


def earned(*sentences: str, fen: str = FEN, box: str = "f3g5") -> float:
    response = f"<think>{' '.join(sentences)}</think> \\boxed{{{box}}}"
    return truth_of(read_reasoning(fen, response, box))


def test_the_formula() -> None:
    assert earned(TRUE[0]) == pytest.approx(1 / 4)
    assert earned(TRUE[1]) == pytest.approx(0.8 / 3.8)
    assert earned(*TRUE) == pytest.approx((1 + 0.8 * 1.75) / (4 + 0.8 * 1.75))
    assert earned(FALSE[0]) == pytest.approx(-1 / 4)
    assert earned(TRUE[0], FALSE[0]) == 0.0


@pytest.mark.parametrize("said", [(), UNREAD, ("White is winning.",), ("White is to move.",)])
def test_what_claims_nothing_new_earns_nothing(said: tuple[str, ...]) -> None:
    assert earned(*said) == 0.0
    assert earned(TRUE[0], *said) == earned(TRUE[0])


def test_what_the_prompt_says_earns_nothing_but_costs_if_it_is_false() -> None:
    fen = "r3k2r/8/8/8/8/8/8/R3K2R w Qk - 0 1"
    true = "White has the right to castle queenside. White is to move. White has a rook on a1."
    false = "White has the right to castle kingside."
    assert earned(true, fen=fen, box="a1a2") == 0.0
    assert earned(false, fen=fen, box="a1a2") == -0.25
    assert set(CONCEPTS) >= GIVEN


def test_a_verdicts_claims_have_the_weights_that_the_term_pays() -> None:
    """Process rewards are made of these: what is given must be worth no more there than in the reward."""
    said = (TRUE[0], TRUE[1], "White is to move.", FALSE[0])
    reading = read_reasoning(FEN, f"<think>{' '.join(said)}</think> \\boxed{{f3g5}}", "f3g5")
    weights = [claim.weight for sentence in sentences_of(reading) for claim in sentence.claims]
    assert weights == [1.0, 0.8, 0.0, 1.0]


@given(st.lists(st.sampled_from(TRUE + FALSE + UNREAD), max_size=12), st.randoms())
def test_order_and_repetition_change_nothing(said: list[str], rng: random.Random) -> None:
    shuffled = [*said, *said]
    rng.shuffle(shuffled)
    assert earned(*shuffled) == pytest.approx(earned(*said))


@given(st.sets(st.sampled_from(TRUE)), st.sampled_from(TRUE), st.sampled_from(FALSE))
def test_a_new_truth_adds_and_a_falsehood_takes(said: set[str], truth: str, falsehood: str) -> None:
    before = earned(*said)
    assert earned(*said, truth) > before or truth in said
    assert earned(*said, falsehood) < before


def test_four_falsehoods_are_worth_less_than_silence_beside_any_truths() -> None:
    every = [earned(*TRUE, *FALSE[:count]) for count in range(len(FALSE) + 1)]
    assert every == sorted(every, reverse=True)
    assert every[-1] < 0
    assert earned(*FALSE, "Black has the bishop pair.", "Black's queen on g5 is pinned to the king.") == -1.0


def test_only_the_text_before_the_box_is_read_and_of_a_long_one_the_beginning() -> None:
    after = rf"<think>{UNREAD[0]}</think> \boxed{{f3g5}} {TRUE[0]}"
    assert truth_of(read_reasoning(FEN, after, "f3g5")) == 0.0
    late = f"<think>{' ' * READ_CHARS}{TRUE[0]}</think> \\boxed{{f3g5}}"
    assert read_reasoning(FEN, late, "f3g5").sentences == ()


def test_places_are_those_of_the_response() -> None:
    response = rf"<think>♞ {TRUE[1]} {UNREAD[0]}</think> {FALSE[0]} \boxed{{f3g5}}"
    sentences = sentences_of(read_reasoning(FEN, response, "f3g5"))
    assert [response[s.start : s.end] for s in sentences][-2:] == [UNREAD[0], FALSE[0]]
    assert [s.read for s in sentences] == [False, False, True]
    (claim,) = sentences[-1].claims
    assert (response[claim.start : claim.end], claim.true) == ("White is a rook up", False)


def test_chess960_is_refused_by_name() -> None:
    fen = "bqnbrkrn/pppppppp/8/8/8/8/PPPPPPPP/BQNBRKRN w GEge - 0 1"
    with pytest.raises(InvalidInput, match="scheme truth cannot read about 'bqnbrkrn/"):
        read_reasoning(fen, r"\boxed{e4}", "e2e4")


@given(st.text(max_size=300), st.sampled_from([chess.STARTING_FEN, FEN]))
def test_any_text_has_a_value_within_bounds(text: str, fen: str) -> None:
    reading = read_reasoning(fen, text + r"\boxed{e4}", "e2e4")
    assert -1.0 <= truth_of(reading) < 1.0
    assert all(0 <= s.start < s.end <= len(text) for s in sentences_of(reading))


@pytest.mark.parametrize(
    "part", ["the knight on c6 attacks the pawn on e5, ", "White is winning, ", "1.e4 e5 "]
)
def test_a_long_text_takes_no_longer_than_its_beginning(part: str) -> None:
    def seconds(size: int) -> float:
        begin = time.process_time()
        read_reasoning(FEN, (part * size)[: size * 50] + r"\boxed{f3g5}", "f3g5")
        return time.process_time() - begin

    assert seconds(100_000) < 20 * max(seconds(80), 0.05)


def test_the_id_names_the_library() -> None:
    assert reader_id().startswith("commentary-")
    assert reader_id() == reader_id()


def test_castling_earns_nothing_by_any_wording() -> None:
    assert {
        name for name, concept in CONCEPTS.items() if name.endswith("castle") or "castling" in name
    } <= GIVEN


def test_what_says_little_earns_little() -> None:
    fen = "8/5pk1/6p1/1P1r3p/5P1P/6P1/5K2/1R6 w - - 0 40"
    vague = ("White has a passed pawn.", "The b-file is half-open for Black.", "Black has three pawns.")
    assert all(earned(said, fen=fen, box="b1b4") < 0.1 for said in vague)
    assert earned("White has a passed pawn on b5.", fen=fen, box="b1b4") == pytest.approx(0.25)
    assert earned("White's king is attacked no times.", fen=fen, box="b1b4") == 0.0


GIVEN_SENTENCE = "White is to move."


def influences(sentences: Sequence[str], effects: Sequence[float], *, gain: float) -> list[float]:
    """What each sentence earns for its effect, if the whole reasoning saves `gain`."""
    response = f"<think>{' '.join(sentences)}</think> \\boxed{{f3g5}}"
    reading = read_reasoning(FEN, response, "f3g5")
    spans = [(sentence.start, sentence.end) for sentence in reading.sentences]
    assert len(spans) == len(sentences)
    measured = [Effect(*span, effect) for span, effect in zip(spans, effects, strict=True)]
    earned = influence_of(reading, [Effect(0, 0, gain), *measured], place="here")
    return [earned.get(span, 0.0) for span in spans]


def test_a_sentence_earns_truth_times_its_effect() -> None:
    """0.8 is the weight of an attack; false sentences only lose; what is given or not read earns nothing."""
    sentences = (TRUE[1], FALSE[0], FALSE[1], GIVEN_SENTENCE, UNREAD[0], TRUE[0])
    earned = influences(sentences, [0.1, 0.1, -0.1, 0.2, 0.2, -0.05], gain=0.5)
    assert earned == pytest.approx([0.08, -0.1, -0.1, 0.0, 0.0, -0.05])
    assert influences(TRUE[:2], [0.3, 0.25], gain=0.1) == pytest.approx([0.06, 0.04]), "scaled to the gain"
    assert influences(TRUE[:2], [0.3, -0.1], gain=-0.2) == pytest.approx([0.0, -0.08])


@pytest.mark.parametrize(
    "effects", [[Effect(0, 0, 1.5)], [Effect(0, 0, float("nan"))], [Effect(0, 1, 0)] * 257]
)
def test_effects_that_no_regret_can_have_are_refused(effects: list[Effect]) -> None:
    with pytest.raises(InvalidInput, match="here: effects must be at most 256, of a regret in"):
        influence_of(read_reasoning(FEN, TRUE[0], "f3g5"), effects, place="here")


def test_the_best_hack_of_influence_earns_what_the_reasoning_saves() -> None:
    """A search over policies: what each chooses after the whole text, none, and the text without a sentence.

    It climbs the term alone. So it finds policies that play worse without a sentence, or with none, but
    together their sentences never earn more than the regret that the whole text saves against none: at most
    the regret of the worst move. With false or given sentences alone there is nothing to earn.
    """
    rng, regrets = np.random.default_rng(0), np.array([0.0, 0.1, 0.6])

    def term(logits: np.ndarray, sentences: Sequence[str]) -> tuple[float, float]:
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        none, whole, *without = (weights / weights.sum(axis=1, keepdims=True)) @ regrets
        effects = [float(regret - whole) for regret in without]
        return sum(influences(sentences, effects, gain=float(none - whole))), float(none - whole)

    def best(sentences: Sequence[str]) -> float:
        logits = rng.normal(size=(2 + len(sentences), 3))
        earned = -1.0
        for _ in range(150):
            tried = logits + rng.normal(size=logits.shape) * rng.choice([0.3, 3.0])
            value, gain = term(tried, sentences)
            assert value <= max(0.0, gain) + 1e-12
            if value > earned:
                logits, earned = tried, value
        return earned

    assert 0.55 < best(TRUE) <= 0.6 + 1e-9
    assert best((TRUE[0], FALSE[0])) <= 0.6 + 1e-9
    assert -0.05 < best((FALSE[0], GIVEN_SENTENCE, FALSE[1])) <= 0.0
