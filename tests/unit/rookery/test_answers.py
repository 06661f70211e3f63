r"""Extraction: which text of a completion is the answer. More cases, with verdicts: `test_answers_traps`."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.answers import MAX_BOX_CHARS, Answer, extract, peel, reasoning_of, text_to_read
from rookery.trace import Outcome

ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
"""Of gpt-oss."""


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
        (r"[THINK]\boxed{d4}[/THINK]\boxed{e4}", "e4"),
        (r"\boxed{e4}[THINK]\boxed{d4}", "e4"),
        (ANALYSIS + r"\boxed{d4}<|end|><|start|>assistant" + FINAL + r"\boxed{e4}<|return|>", "e4"),
        (FINAL + r"\boxed{e4}<|end|><|start|>assistant" + ANALYSIS + r"\boxed{d4}", "e4"),
        (r"\boxed{\mathbf{\text{Nf3}}}", "Nf3"),
        (r"\boxed{\boxed{Nf3}}", "Nf3"),
        (r"\boxed{{Nf3}}", "Nf3"),
        (r"\boxed{2...Nf3}", "Nf3"),
        ("\\boxed{12\u2026 Nf3}", "Nf3"),
        (r"\boxed{\text{1. e4}}", "e4"),
        (r"\boxed{Qxf7\#}", "Qxf7#"),
        (r"\boxed {Nf3}", "Nf3"),
        ("\\boxed{\n  Nf3\n}", "Nf3"),
        ("\\boxed{\text{Nf3}}", "Nf3"),  # a tab
        (r"\\boxed{Nf3}", "Nf3"),  # escaped twice
        (r"\boxed{\\text{Nf3}}", "Nf3"),
        (r"\boxed{e4 \boxed{d4}", "d4"),  # the first never closes
        (r"\boxed{\text{N}\text{f3}}", "Nf3"),
        (r"\boxed{\mathrm{Qxf7}\#}", "Qxf7#"),
        (r"\boxed{\text{Qxf7}^{\#}}", "Qxf7#"),
        (r"\boxed{\text{Nf3}^+}", "Nf3+"),
        (r"\boxed{\bf Nf3}", "Nf3"),
        (r"\boxed{N\times f3}", "Nxf3"),
        (r"\boxed{\displaystyle\mathbf{e8=\text{Q}}}", "e8=Q"),
        (r"\boxed{1.\,e4}", "e4"),
        (r"\boxed{1\ldots e5}", "e5"),
        (r"\boxed{12. ... e5}", "e5"),
        (r"\boxed{\{Nf3\}}", "Nf3"),
        (r"\boxed{<Nf3>}", "Nf3"),
        (r"\boxed{<answer>Nf3</answer>}", "Nf3"),
        (r"\boxed{'Nf3'}", "Nf3"),
        (r"\boxed{_Nf3_}", "Nf3"),
        (r"\boxed{***Nf3***}", "Nf3"),
        ("\\boxed{\u00abNf3\u00bb}", "Nf3"),
        ("\\boxed{\u200bNf3\ufeff}", "Nf3"),  # zero-width space, byte order mark
        ("\\boxed{Nf3\u00a0}", "Nf3"),
        ("\\boxed{```\nNf3\n```}", "Nf3"),
        (r"\boxed{**Nf3** or **e4**}", "Nf3 or e4"),
        (r"\boxed{\text{Nf3}\text{ or }\text{e4}}", "Nf3 or e4"),
        (r"\boxed{$Nf3$ $1}", "Nf3 $1"),  # an annotation, not LaTeX
        (r"\boxed{\textbf{--}}", "--"),
        (r"\boxed{\cancel{e4}}", r"\cancele4"),  # struck out: no move
        (r"\boxed{\frac{e4}{d4}}", r"\frace4d4"),
        (r'\boxed{{"move": "e4"}}', "move: e4"),
        (r"\boxed{e2\rightarrow e4}", "e2-> e4"),
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
        (r"[THINK]I will play \boxed{e4}", True, Outcome.TRUNCATED),
        (ANALYSIS + r"I will play \boxed{e4}", True, Outcome.TRUNCATED),
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


UNITS = {
    "opening braces": "{",
    "closing braces": "}",
    "braces": "{}",
    "open boxes": r"\boxed{",
    "open boxes with spaces": r"\boxed   {",
    "empty boxes": r"\boxed{}",
    "unbalanced boxes": r"\boxed{{}",
    "boxes of mangled commands": "\boxed{\text{",
    "boxes that nest and never close": r"\boxed{e4 {\text{Nf3}} ",
    "closed boxes": r"\boxed{\text{**e4**}} ",
    "thinks": "<think>",
    "ends of thinking": "</think>",
    "thoughts": r"<think>\boxed{e4}</think>",
    "thoughts of Magistral": r"[THINK]\boxed{e4}[/THINK]",
    "channels": "<|channel|>",
    "channels of spaces": "<|channel|>" + " " * 90,
    "ends of channels": "<|end|><|start|>assistant",
    "commands in a box": r"\text{",
    "stars": "**",
    "spaces": " ",
    "backslashes": "\\",
    "dollars": "$",
    "mixed alphabets": "\u265ee\uff14\u0301\u200b\U0001f47b\ud800",
    "boxes in mixed alphabets": "\\boxed{\u265ee\uff14\u0301\u200b\U0001f47b}",
}


@pytest.mark.parametrize("frame", ["{}", r"<think>{}</think>\boxed{{}}"])
@pytest.mark.parametrize("name", UNITS)
def test_ten_times_the_text_takes_ten_times_as_long(name: str, frame: str) -> None:
    unit = UNITS[name]
    tenth, whole = (frame.replace("{}", unit * (size // len(unit))) for size in (30_000, 300_000))
    # Quadratic time would be a hundred times. The machine may disturb one measurement, not all three.
    assert any(seconds(whole) < 30 * max(seconds(tenth), 1e-4) for _ in range(3))


def seconds(response: str) -> float:
    """CPU time of an extraction."""
    begin = time.process_time()
    extract(response)
    return time.process_time() - begin


@given(st.text(alphabet="\\boxed{}<>/think$*`\"'( )[]0123e4Nf\t\b.-=#+", max_size=300))
def test_any_text_gives_an_answer_or_a_reason(response: str) -> None:
    answer = extract(response)
    assert bool(answer.text) == (answer.missing is None)


@given(st.text(max_size=100))
def test_peeling_is_final(text: str) -> None:
    assert peel(peel(text)) == peel(text)


@given(st.text(alphabet=st.characters(exclude_characters="\\{}"), max_size=MAX_BOX_CHARS))
def test_what_stands_before_the_box_does_not_matter(noise: str) -> None:
    after = noise.replace("<", "").replace("[", "")  # no new mark of reasoning
    assert extract(rf"{noise}</think>{after}\boxed{{e4}}") == Answer("e4")


@pytest.mark.parametrize(
    ("opened", "closed"), [("[THINK]", "[/THINK]"), (ANALYSIS, f"<|end|><|start|>assistant{FINAL}")]
)
def test_reasoning_in_other_marks_is_read_at_its_place(opened: str, closed: str) -> None:
    response = f"{opened}e4 wins.{closed}Well: \\boxed{{e4}}"
    text = text_to_read(response, "e2e4", chars=1000)
    assert text.startswith("<think>") and text.count("</think>") == 1
    assert [text.index(word) for word in ("e4 wins", "Well")] == [
        response.index(word) for word in ("e4 wins", "Well")
    ]
    assert reasoning_of(f"{opened}no box") == "no box"
