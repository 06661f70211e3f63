"""The price list: every answer without a legal move costs more than the worst legal move."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import InvalidInput
from rookery.trace import Outcome
from services.reward.schemes import PENALTIES, SCHEMES, find_scheme

regrets = st.floats(0.0, 1.0)


def test_every_outcome_but_legal_has_a_price() -> None:
    assert set(PENALTIES) == set(Outcome) - {Outcome.LEGAL}


@given(st.sampled_from(sorted(SCHEMES)), regrets)
def test_every_refusal_is_strictly_below_every_legal_move(name: str, regret: float) -> None:
    assert max(PENALTIES.values()) < find_scheme(name).quality(regret)


@given(st.sampled_from(sorted(SCHEMES)), regrets, regrets)
def test_less_regret_is_never_worse(name: str, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert find_scheme(name).quality(low) >= find_scheme(name).quality(high)


def test_the_best_move_earns_a_positive_zero() -> None:
    assert str(find_scheme("delta").quality(0.0)) == "0.0"


def test_an_unknown_scheme_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="no scheme 'alpha': choose from delta, best"):
        find_scheme("alpha")
