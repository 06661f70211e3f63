r"""Extraction: which text of a completion is the answer, case by case."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.trace import Outcome
from services.reward.parse import MAX_BOX_CHARS, Answer, extract, peel


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (r"\boxed{Nf3}", "Nf3"),
        (r"first \boxed{e4}, no, \boxed{d4}", "d4"),
        (r"\boxed{e4} and then \boxed{d4 never closed", "e4"),
        (r"<think>\boxed{a3}</think>\boxed{e4}", "e4"),
        (r"<think>a</think><think>b \boxed{a3}</think> \boxed{e4}", "e4"),
        (r"no opening tag, the template had it</think>\boxed{e4}", "e4"),
        (r"\boxed{e4}<think>\boxed{d4}", "e4"),
        (r"\boxed{\text{Nf3}}", "Nf3"),
        (r"\boxed{\mathrm{Nf3}}", "Nf3"),
        (r"\boxed{\mathbf{\text{Nf3}}}", "Nf3"),
        (r"\boxed{\boxed{Nf3}}", "Nf3"),
        (r"\boxed{{Nf3}}", "Nf3"),
        (r"\boxed{$Nf3$}", "Nf3"),
        (r"\boxed{$$Nf3$$}", "Nf3"),
        (r"\boxed{**Nf3**}", "Nf3"),
        (r"\boxed{`Nf3`}", "Nf3"),
        (r"\boxed{\(Nf3\)}", "Nf3"),
        (r"\boxed{\[Nf3\]}", "Nf3"),
        (r'\boxed{"Nf3"}', "Nf3"),
        ("\\boxed{\u201cNf3\u201d}", "Nf3"),
        (r"\boxed{1. e4}", "e4"),
        (r"\boxed{2...Nf3}", "Nf3"),
        ("\\boxed{12\u2026 Nf3}", "Nf3"),
        (r"\boxed{\text{1. e4}}", "e4"),
        (r"\boxed{Qxf7\#}", "Qxf7#"),
        (r"\boxed {Nf3}", "Nf3"),
        ("\\boxed{\n  Nf3\n}", "Nf3"),
        ("\boxed{Nf3}", "Nf3"),  # a backspace: "\b" in a string written without care
        ("\\boxed{\text{Nf3}}", "Nf3"),  # a tab
        ("\\boxed{\uff2e\uff46\uff13}", "Nf3"),  # full width
        (r"\boxed{0-0-0}", "0-0-0"),
        (r"\boxed{Nothing fits, I resign}", "Nothing fits, I resign"),
    ],
)
def test_finds_the_answer(response: str, text: str) -> None:
    assert extract(response) == Answer(text)


@pytest.mark.parametrize(
    ("response", "truncated", "missing"),
    [
        ("", False, Outcome.NO_BOX),
        ("e4", False, Outcome.NO_BOX),
        ("Final Answer: <answer>e4</answer>", False, Outcome.NO_BOX),
        ("e4", True, Outcome.TRUNCATED),
        (r"<think>\boxed{e4}</think>", False, Outcome.NO_BOX),
        (r"<think>\boxed{e4}</think>", True, Outcome.TRUNCATED),
        (r"<think>I will play \boxed{e4}", False, Outcome.NO_BOX),
        (r"<think>I will play \boxed{e4}", True, Outcome.TRUNCATED),
        (r"\boxed{e4", False, Outcome.TRUNCATED),
        (r"\boxed{\text{e4}", False, Outcome.TRUNCATED),
        (r"\boxed{}", False, Outcome.EMPTY_BOX),
        (r"\boxed{  }", False, Outcome.EMPTY_BOX),
        (r"\boxed{\text{}}", False, Outcome.EMPTY_BOX),
        (r"\boxed{e4} \boxed{}", False, Outcome.EMPTY_BOX),
        (rf"\boxed{{{'e' * (MAX_BOX_CHARS + 1)}}}", False, Outcome.TOO_LONG),
        (r"\boxed e4", False, Outcome.NO_BOX),
        (r"\boxed}{e4", False, Outcome.NO_BOX),
    ],
)
def test_says_why_there_is_no_answer(response: str, truncated: bool, missing: Outcome) -> None:
    assert extract(response, truncated=truncated) == Answer(missing=missing)


def test_a_closed_box_counts_although_the_completion_was_cut() -> None:
    assert extract(r"\boxed{e4} because", truncated=True) == Answer("e4")


@pytest.mark.parametrize(
    "unit",
    ["{", "}", "{}", r"\boxed{", r"\boxed{}", r"\boxed{{}", "<think>", "</think>", "\\", "$"],
)
def test_a_megabyte_takes_linear_time(unit: str) -> None:
    text = unit * ((1 << 20) // len(unit))
    begin = time.perf_counter()
    extract(text)
    assert time.perf_counter() - begin < 1.0  # milliseconds on an idle machine; quadratic would be minutes


@given(st.text(alphabet="\\boxed{}<>/think$*`\"'( )[]0123e4Nf\t\b.-=#+", max_size=300))
def test_any_text_gives_an_answer_or_a_reason(response: str) -> None:
    answer = extract(response)
    assert bool(answer.text) == (answer.missing is None)


@given(st.text(max_size=100))
def test_peeling_is_final(text: str) -> None:
    assert peel(peel(text)) == peel(text)


@given(st.text(alphabet=st.characters(exclude_characters="\\{}"), max_size=MAX_BOX_CHARS))
def test_what_stands_before_the_box_does_not_matter(noise: str) -> None:
    assert extract(rf"{noise}</think>{noise.replace('<', '')}\boxed{{e4}}") == Answer("e4")
