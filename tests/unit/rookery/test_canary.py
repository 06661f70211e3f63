"""What the comparison of an engine's answers with a version's canary decides, at noise of any size."""

import random

import pytest
from hypothesis import settings

from rookery.canary import Canary, Rows

BEGINNINGS, TOKENS = 8, 8
SEEDS = range(2 * settings.default.max_examples)
"""As of examples, `make check` tries a quarter of those of `make test`."""


def _rows(values: list[list[float]], noise: float, rng: random.Random) -> Rows:
    """An engine's answer: these log-probabilities with noise, besides less likely tokens."""
    noisy = ([value + rng.gauss(0.0, noise) for value in row] for row in values)
    return [{**dict(enumerate(row)), **{100 + i: min(row) - 0.1 * i for i in range(1, 13)}} for row in noisy]


def _faults(shift: float, *, served: str, noise: float, precision: float) -> list[str | None]:
    """The verdicts on a version that moves log-probabilities by `shift`, if the engine serves `served`."""
    verdicts = []
    for seed in SEEDS:
        rng = random.Random(seed)

        def moved(base: list[list[float]], rng: random.Random = rng) -> list[list[float]]:
            return [[value + rng.gauss(0.0, shift) for value in row] for row in base]

        base = [[-3.0 - rng.random() for _ in range(TOKENS)] for _ in range(BEGINNINGS)]
        version = moved(base)
        answers = {"itself": version, "the base": base, "another": moved(base)}
        canary = Canary(
            token_ids=list(range(BEGINNINGS)),
            lengths=list(range(1, BEGINNINGS + 1)),
            tokens=[list(range(TOKENS))] * BEGINNINGS,
            logprobs=version,
            base=base,
        )
        bases = [_rows(base, noise, rng) for _ in range(2)]
        agreement = canary.compare(_rows(answers[served], noise, rng), bases, precision=precision)
        verdicts.append(agreement.fault)
    return verdicts


@pytest.mark.parametrize(
    ("noise", "precision"), [(0.0, 2**-23), (2e-6, 2**-23), (0.01, 2**-7), (0.06, 2**-7)]
)
@pytest.mark.parametrize("shift_in_noises", [0.0, 0.3, 1.0, 4.5, 30.0, 300.0])
def test_a_version_is_never_refused_for_noise(noise: float, precision: float, shift_in_noises: float) -> None:
    shift = shift_in_noises * max(noise, precision)
    faults = _faults(shift, served="itself", noise=noise, precision=precision)
    assert not any(faults)


@pytest.mark.parametrize(("noise", "precision"), [(2e-6, 2**-23), (0.01, 2**-7)])
@pytest.mark.parametrize(
    ("served", "message"),
    [("the base", "more like the base model"), ("another", "unlike|more like the base")],
)
def test_what_differs_by_more_than_six_times_the_noise_is_refused(
    noise: float, precision: float, served: str, message: str
) -> None:
    faults = _faults(7.0 * max(noise, precision), served=served, noise=noise, precision=precision)
    assert all(faults)
    assert all(any(part in str(fault) for part in message.split("|")) for fault in faults)


def test_a_version_that_changes_nothing_must_not_answer_otherwise() -> None:
    faults = _faults(0.0, served="itself", noise=0.01, precision=2**-7)
    assert not any(faults)
    rows = [[-1.0, -2.0]]
    canary = Canary(token_ids=[1], lengths=[1], tokens=[[0, 1]], logprobs=rows, base=rows)
    base, other = [{0: -1.0, 1: -2.0}], [{0: -1.4, 1: -1.6}]
    fault = canary.compare(other, [base, base], precision=2**-7).fault
    assert fault is not None
    assert "unlike the trainer's copy of it (noise 0.0078, expected change 0," in fault


def test_a_token_that_left_the_likeliest_counts_as_the_least_of_them() -> None:
    canary = Canary(token_ids=[1], lengths=[1], tokens=[[0, 1]], logprobs=[[-0.1, -9.0]], base=[[-1.0, -1.0]])
    base, answer = [{0: -1.0, 1: -1.0, 2: -3.0}], [{0: -0.1, 2: -3.0, 3: -4.0}]
    agreement = canary.compare(answer, [base, base], precision=2**-23)
    assert (agreement.distance, agreement.applied) == pytest.approx((0.0, 1.0))


@pytest.mark.parametrize(
    "wrong",
    [
        {"lengths": [2]},
        {"lengths": [1, 1]},
        {"base": [[-1.0]]},
        {"logprobs": [[-1.0, float("nan")]]},
        {"token_ids": [-1]},
        {"lengths": [0]},
    ],
)
def test_a_canary_that_does_not_fit_together_is_refused(wrong: dict[str, object]) -> None:
    sound = {"token_ids": [1], "lengths": [1], "tokens": [[0, 1]], "logprobs": [[-1.0, -2.0]]}
    sound |= {"base": [[-1.0, -2.0]]}
    Canary.model_validate(sound)
    with pytest.raises(ValueError, match="validation error"):
        Canary.model_validate(sound | wrong)
