r"""From what a model wrote to the text of its answer: the last closed `\boxed{...}` after its reasoning.

Only the completion is read, never the prompt. Whether the text is a move is for `notation`; this
module knows no board. All of it takes time linear in the length of the completion.
"""

import re
import unicodedata
from dataclasses import dataclass

from rookery.trace import Outcome

MAX_BOX_CHARS = 100
"""The longest move with all its wrapping needs a third of it."""

MAX_BRACE_DEPTH = 6
r"""`\boxed{$\text{\mathrm{Nf3}}$}` has two levels inside; deeper nesting than this is no closed box."""


def _balanced(depth: int) -> str:
    # Possessive quantifiers: each character is looked at once per level, however many boxes never close.
    if depth == 0:
        return r"[^{}]*+"
    return rf"[^{{}}]*+(?:\{{{_balanced(depth - 1)}\}}[^{{}}]*+)*+"


_BOX = r"(?:\\b|\x08)oxed\s{0,8}+\{"  # "\b" of "\boxed" becomes a backspace in a string written without care
_CLOSED_BOX = re.compile(rf"{_BOX}({_balanced(MAX_BRACE_DEPTH)})\}}")
_OPEN_BOX = re.compile(_BOX)

_MANGLED = {r"\boxed": "\boxed", r"\text": "\text", r"\fbox": "\fbox"}  # backspace, tab, form feed

_WRAPPERS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"\\[a-zA-Z]+\s*\{(.*)\}",  # \text{..}, \mathrm{..}
        r"\{(.*)\}",
        r"\\\((.*)\\\)",
        r"\\\[(.*)\\\]",
        r"(?P<mark>\$\$?|\*{1,3}|_{1,2}|`{1,3}|[\"'])(.*)(?P=mark)",
        "[\u2018\u201c](.*)[\u2019\u201d]",
    )
)
_MOVE_NUMBER = re.compile(r"\d{1,3}\s*\.+\s*")
_LATEX_ESCAPE = re.compile(r"\\([#$%&_{}+=])")
_LATEX_SPACE = re.compile(r"\\[,;:! ]|~")


@dataclass(frozen=True, slots=True)
class Answer:
    """The text of the answer, or `missing`: why there is none."""

    text: str = ""
    missing: Outcome | None = None


def extract(response: str, *, truncated: bool = False) -> Answer:
    r"""The answer in `response`; `truncated` says that the completion was cut at its token limit.

    >>> extract(r"<think>\boxed{e4}?</think> I play \boxed{\text{Nf3}}.")
    Answer(text='Nf3', missing=None)
    >>> extract(r"I play \boxed{Nf").missing
    <Outcome.TRUNCATED: 'truncated'>
    """
    tail = after_reasoning(response)
    box = None
    for box in _CLOSED_BOX.finditer(tail):  # noqa: B007 -- the last one counts
        pass
    if box is None:
        cut = truncated or _OPEN_BOX.search(tail)
        return Answer(missing=Outcome.TRUNCATED if cut else Outcome.NO_BOX)
    content = box[1]
    if len(content) > MAX_BOX_CHARS:
        return Answer(missing=Outcome.TOO_LONG)
    text = peel(content)
    return Answer(text) if text else Answer(missing=Outcome.EMPTY_BOX)


def after_reasoning(response: str) -> str:
    """What follows the last `</think>`, up to a `<think>` that never closes.

    >>> after_reasoning("a<think>b</think>c<think>d")
    'c'
    """
    tail = response[response.rfind("</think>") + len("</think>") :] if "</think>" in response else response
    return tail.partition("<think>")[0]


def peel(text: str) -> str:
    r"""Takes off LaTeX, Markdown, quotes, move numbers and stray whitespace, outermost first.

    >>> peel(r"**$\text{12... Qxf7\#}$**")
    'Qxf7#'
    """
    for whole, mangled in _MANGLED.items():
        text = text.replace(mangled, whole)
    text = unicodedata.normalize("NFKC", text)
    while True:
        inner = _unwrapped(text.strip())
        if inner == text:
            return _LATEX_ESCAPE.sub(r"\1", _LATEX_SPACE.sub(" ", text)).strip()
        text = inner


def _unwrapped(text: str) -> str:
    for wrapper in _WRAPPERS:
        if match := wrapper.fullmatch(text):
            return match[match.lastindex or 0]
    if match := _MOVE_NUMBER.match(text):
        return text[match.end() :]
    return text
