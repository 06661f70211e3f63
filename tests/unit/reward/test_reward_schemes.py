"""The price list: every answer without a legal move costs more than the worst legal move."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commentary import read
from rookery.errors import InvalidInput
from rookery.schemes import TERMS, Evidence, find_scheme
from rookery.trace import Evaluation, Outcome
from services.reward.truth import truth_of

REFUSED = sorted(set(Outcome) - {Outcome.LEGAL})
TIDY = r"<think>The rook hangs.</think> I take it: \boxed{Rxa8}"

wins = st.floats(0.0, 1.0)
JUDGES = sorted(name for name, term in TERMS.items() if term.judges_move)
BY_ENGINE = [name for name in JUDGES if TERMS[name].uses != "model"]
moves = st.sampled_from(JUDGES)
weights = st.sampled_from(["", "0.1*", "2*", "1000*", ".5*"])
sums = st.builds(
    "{}{}+{}format+{}length(100)+{}candidates(2)+{}values(2)+{}consistency+{}truth+{}mate".format,
    *(weights, moves, *[weights] * 7),
)
SAID = ("White is to move.", "Material is level.", "White has a passed pawn on e2.", "Black is in check.")
texts = st.sampled_from(["", TIDY, *SAID, " ".join(SAID), "x" * 50, "x" * 150, "x" * 5000])


EVEN = Evaluation(cp=0)


@dataclass
class Known(Evidence):
    """Evidence that a test chooses."""

    win_best: float = 0.5
    win_played: float = 0.5
    response: str = ""
    win_worst: float = 0.0
    score: Evaluation = EVEN
    wins_named: Sequence[float] = ()
    stated_errors: Sequence[float] = ()
    consistency: float = 0.0
    legal_moves: int = 20
    truth: float = 0.0
    influence: float = 0.0
    model: float = 0.0


def evidence(best: float, played: float, response: str = "", worst: float = 0.0) -> Known:
    played = max(played, worst)
    return Known(
        max(best, played),
        played,
        response,
        worst,
        model=played,
        wins_named=(worst, played),
        stated_errors=(1 - worst, played),
        consistency=1.0,
        truth=truth_of(read(chess.STARTING_FEN, response)),
        score=Evaluation(mate=1) if played == 1 else EVEN,
    )


@given(moves | sums, st.sampled_from(REFUSED), wins, wins, wins, texts)
def test_every_refusal_is_strictly_below_every_legal_move(
    text: str, outcome: Outcome, best: float, played: float, worst: float, response: str
) -> None:
    scheme = find_scheme(text)
    reward = sum(scheme.components(evidence(best, played, response, worst)).values())
    assert scheme.penalty(outcome) < reward or math.isclose(scheme.low, reward)
    assert scheme.penalty(outcome) < scheme.low
    assert scheme.low - 1e-9 <= reward <= scheme.high + 1e-9


@given(st.sampled_from(BY_ENGINE), wins, wins, wins, wins)
def test_less_regret_is_never_worse(name: str, best: float, one: float, other: float, worst: float) -> None:
    low, high = sorted((one, other))
    best = max(best, high)
    worst = min(worst, low)
    value = TERMS[name].value
    assert value(Known(best, high, "", worst)) >= value(Known(best, low, "", worst))


@pytest.mark.parametrize("name", BY_ENGINE)
def test_the_best_move_earns_the_most(name: str) -> None:
    term = TERMS[name]
    assert str(term.value(evidence(0.6, 0.6, worst=0.1))) == str(term.high)


@pytest.mark.parametrize(
    ("name", "best", "played", "worst", "value"),
    [
        ("delta", 0.9, 0.4, 0.0, -0.5),
        ("best", 0.9, 0.9, 0.0, 1.0),
        ("best", 0.9, 0.8999, 0.0, 0.0),
        ("minmax", 0.9, 0.5, 0.1, 0.5),
        ("minmax", 0.5, 0.5, 0.5, 1.0),
        ("minmax", 0.9, 0.1, 0.1, 0.0),
        # lila's formula, by hand: 103.1668 * exp(-0.04354 * 10) - 3.1669 + 1 = 64.583
        ("accuracy", 0.6, 0.5, 0.0, 0.6458),
        ("accuracy", 1.0, 0.0, 0.0, 0.0),
    ],
)
def test_values(name: str, best: float, played: float, worst: float, value: float) -> None:
    assert TERMS[name].value(Known(best, played, "", worst)) == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize(("mate", "value"), [(1, 1.0), (4, 0.25), (None, 0.0), (-1, 0.0), (-3, 0.0)])
def test_mate_is_worth_more_the_nearer_it_is(mate: int | None, value: float) -> None:
    score = Evaluation(mate=mate) if mate else Evaluation(cp=900)
    assert TERMS["mate"].value(Known(score=score)) == value


@pytest.mark.parametrize(
    ("response", "value"),
    [
        (TIDY, 1.0),
        (TIDY + "\n", 1.0),
        (r"\boxed{Rxa8}", 0.0),
        (r"<think></think>\boxed{Rxa8}", 0.0),
        (r"<think> </think>\boxed{Rxa8}", 0.0),
        (r"<think>a</think>\boxed{Rxa8}\boxed{Rxa8}", 0.0),
        (r"<think>a \boxed{Ra1}</think>\boxed{Rxa8}", 0.0),
        (r"<think>a</think><think>b</think>\boxed{Rxa8}", 0.0),
        (r"Hello <think>a</think>\boxed{Rxa8}", 0.0),
        (r"<think>a</think>", 0.0),
        (r"[THINK]a[/THINK]\boxed{Rxa8}", 1.0),
        (r"[THINK]a[/THINK][THINK]b[/THINK]\boxed{Rxa8}", 0.0),
        (
            r"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>\boxed{Rxa8}",
            1.0,
        ),
    ],
)
def test_format_is_one_thought_then_one_box(response: str, value: float) -> None:
    assert TERMS["format"].value(Known(response=response)) == value


def test_format_takes_time_in_proportion_to_the_text() -> None:
    def seconds(size: int) -> float:
        texts = ("<think>" * (size // 7), "<think>" + "x" * size + "<", "<think>" + " " * size, " " * size)
        begin = time.process_time()
        for text in texts:
            TERMS["format"].value(Known(response=text))
        return time.process_time() - begin

    assert seconds(1_000_000) < 100 * max(seconds(100_000), 1e-3)


@pytest.mark.parametrize(
    ("term", "prices"),
    [
        ("length(100)", {0: 0.0, 100: 0.0, 150: -0.1, 200: -0.2, 10_000: -0.2}),
        ("length(100-120)", {0: 0.0, 100: 0.0, 105: -0.05, 120: -0.2, 10_000: -0.2}),  # DAPO, eq. 13
        ("length(0-1000)", {0: 0.0, 1: -0.0002, 500: -0.1, 1000: -0.2, 10_000: -0.2}),
    ],
)
def test_length_costs_beyond_what_is_allowed(term: str, prices: dict[int, float]) -> None:
    scheme = find_scheme(f"delta + 0.2*{term}")
    for chars, price in prices.items():
        assert scheme.components(Known(response="x" * chars))[term] == pytest.approx(price)


@pytest.mark.parametrize(
    ("wins_named", "legal_moves", "value"),
    [
        ((0.9, 0.2, 0.5), 20, 1.0),
        ((0.5, 0.2), 20, 2 / 3 * 0.6),
        ((0.9,), 20, 1 / 3),
        ((), 20, 0.0),
        ((0.9, 0.1), 2, 1.0),  # there are no other moves
        ((0.95,), 1, 1.0),  # better than the best: noise between two searches
    ],
)
def test_candidates_are_the_share_that_is_legal_and_different_times_the_best(
    wins_named: tuple[float, ...], legal_moves: int, value: float
) -> None:
    ((_, term),) = (pair for pair in find_scheme("delta+candidates").terms if pair[1].candidates)
    known = Known(0.9, 0.1, wins_named=wins_named, legal_moves=legal_moves)
    assert term.value(known) == pytest.approx(value)


@pytest.mark.parametrize(
    ("stated_errors", "legal_moves", "value"),
    [
        ((0.1, 0.0, 0.4), 20, (0.9 + 1.0 + 0.6) / 3),
        ((0.1, 1.0), 20, 0.3),  # the second has no value, the third no move
        ((0.1, 0.3), 2, 0.8),  # there are no other moves
        ((), 20, 0.0),
    ],
)
def test_values_are_worth_more_the_nearer_they_are(
    stated_errors: tuple[float, ...], legal_moves: int, value: float
) -> None:
    known = Known(stated_errors=stated_errors, legal_moves=legal_moves)
    assert find_scheme("delta+values").components(known)["values(3)"] == pytest.approx(value)


def test_a_scheme_names_its_versions() -> None:
    assert find_scheme("delta+0.2*candidates").id == "1*delta-1+0.2*candidates(3)-2"
    assert find_scheme("delta+candidates(5)").candidates == 5
    assert find_scheme("delta").candidates == 0
    assert find_scheme("delta").id == "delta-1"
    assert find_scheme("delta + .10*format + length").id == "1*delta-1+0.1*format-1+1*length(4000)-1"
    assert find_scheme("2*best").id == "2*best-2"
    assert find_scheme("0.3333331*delta").id != find_scheme("0.3333332*delta").id


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("alpha", "no scheme 'alpha': choose from delta, best, accuracy, minmax, model, mate, format"),
        ("", "is not a term"),
        ("delta+", "is not a term"),
        ("delta-0.1*format", "is not a term"),
        ("0*delta", "weight 0 is not in"),
        ("delta+delta", "names a term twice"),
        ("delta+length(5)+length(6)", "names a term twice"),
        ("format", "has no term that judges the move"),
        ("delta+length(0)", "choose from"),
        ("delta+length(00)", "choose from"),
        ("delta+length(200-100)", "length(N-M) with N below M"),
        ("delta+length(100-100)", "length(N-M) with N below M"),
        ("delta+candidates(1-2)", "choose from"),
        ("delta(3)", "choose from"),
        ("candidates", "has no term that judges the move"),
        ("delta+candidates(0)", "values(N) for N up to 10"),
        ("delta+candidates(11)", "values(N) for N up to 10"),
        ("delta+values(1)+candidates(10)", "must have the same N"),
        ("delta+values(0)", "values(N) for N up to 10"),
        ("values+consistency", "has no term that judges the move"),
        ("delta+candidates+candidates(2)", "names a term twice"),
        ("delta+" * 1000 + "best", "a scheme cannot have 6004 characters"),
    ],
)
def test_a_scheme_that_cannot_be_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        find_scheme(text)
    assert why in str(caught.value)
