r"""Finds the answer in a completion: the content of the last closed `\boxed{...}` after the reasoning.

In a text that continues a game, the answer is the first line. Only the completion is read, never the prompt:
reasoning that the prompt opens has its mark at the beginning of the text (see `clients.inference`).
Whether the text is a move is decided in `notation`; this module does not use a board. Its time is linear
in the length of the completion.
"""

import re
import unicodedata
from dataclasses import dataclass

from rookery.trace import Outcome

MAX_BOX_CHARS = 100
"""The longest content of a box. The longest move with all its LaTeX needs a third of it."""

MAX_BRACE_DEPTH = 6
r"""The deepest nesting of braces in a box. `\boxed{$\text{\mathrm{Nf3}}$}` has two levels inside.

A box with deeper nesting does not count as closed."""


def _balanced(depth: int) -> str:
    # Possessive quantifiers do not backtrack, so each character is read once per level, however many boxes
    # never close.
    if depth == 0:
        return r"[^{}]*+"
    return rf"[^{{}}]*+(?:\{{{_balanced(depth - 1)}\}}[^{{}}]*+)*+"


_BOX = r"(?:\\b|\x08)oxed\s{0,8}+\{"  # in a string that is not raw, "\b" of "\boxed" is a backspace
_CLOSED_BOX = re.compile(rf"{_BOX}({_balanced(MAX_BRACE_DEPTH)})\}}")
_OPEN_BOX = re.compile(_BOX)

_PLAIN = re.compile(r"[A-Za-z0-9+#=-]*")

# "\b", "\t" and "\f" of a LaTeX command that JSON or Python turned into control characters.
_MANGLED = re.compile(r"[\b\t\f](?=oxed|ext|box)")
_MANGLED_LETTERS = {"\b": r"\b", "\t": r"\t", "\f": r"\f"}

# Zero-width spaces and joiners, marks of writing direction, the soft hyphen, the byte order mark.
_INVISIBLE = dict.fromkeys(
    [0xAD, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065), 0xFEFF]
)

OPENINGS = ("<think>", "[THINK]")
"""Marks with which a chat template may open the reasoning, at the end of the prompt."""

# Not the marks of a channel, which begin what an answer that was cut did not come to.
_END_MARK = re.compile(
    r"(?:<[|\uff5c](?!channel|message)[\w\u2581]{1,40}[|\uff5c]>|</s>|<(?:eos|pad|end_of_turn)>)\s{0,8}\Z"
)

# Magistral's marks, and the channels of gpt-oss. All are as long as the tag of `<think>` or longer.
_FOREIGN_MARK = re.compile(
    r"(\[THINK\]|<\|channel\|>(?!final)[^<]{0,80}<\|message\|>)"
    r"|\[/THINK\]|(?:<\|end\|><\|start\|>assistant)?<\|channel\|>final[^<]{0,80}<\|message\|>"
)

_FONT = (
    r"text[a-z]*|math[a-z]*|boxed|[fmh]box|operatorname|emph|underline|bf|it|rm|sf|tt|"
    r"displaystyle|textstyle|tiny|small|large|Large|huge|Huge"
)

# Removes only what cannot change which move is meant: `\cancel{e4}` and `\frac{e4}{d4}` are kept.
_MARKUP = tuple(
    (re.compile(pattern, re.IGNORECASE if "answer" in pattern else 0), plain)
    for pattern, plain in (
        (r"\\{2,}", r"\\"),
        (rf"\\(?:{_FONT})(?![A-Za-z])\s*", ""),
        (r"\\[()\[\]]", ""),
        (r"\\l?dots(?![A-Za-z])", "..."),
        (r"\\times(?![A-Za-z])\s*", "x"),
        (r"\\(?:to|(?:long)?rightarrow)(?![A-Za-z])", "->"),
        (r"\\quad(?![A-Za-z])|\\[,;:! ]|~", " "),
        (r"\\([#$%&_{}+=])", r"\1"),
        (r"[{}]", ""),
        (r"\^(?=[+#])", ""),
        (r"</?(?:answer|move|final|code|strong|em|b|i)>", ""),
        # Emphasis and quotes, unless between two letters; "$" not before the number of an annotation, "$14".
        (r"(?<![A-Za-z0-9])(?:[*_`\"'\u2018-\u201e\u00ab\u00bb]|\$(?!\d{1,3}\s*\Z))+", ""),
        (r"[*_`\"'\u2018-\u201e\u00ab\u00bb$]+(?![A-Za-z0-9*_`\"'$\u2018-\u201e\u00ab\u00bb])", ""),
    )
)
_BRACKETS = re.compile(r"\[(.*)\]|<(.*)>", re.DOTALL)
_MOVE_NUMBER = re.compile(r"(?:\d{1,3}\s*)?\.+\s*")


@dataclass(frozen=True, slots=True)
class Answer:
    """The text of the answer. If there is none, `missing` says why."""

    text: str = ""
    missing: Outcome | None = None


def extract(response: str, *, truncated: bool = False) -> Answer:
    r"""The answer in `response`. `truncated` means that the completion was cut at its token limit.

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


def first_line(response: str, *, truncated: bool = False) -> Answer:
    r"""The answer in a text that continues a game: its first line.

    >>> first_line("Nf3\nd5\n").text, first_line("Nf", truncated=True).missing
    ('Nf3', <Outcome.TRUNCATED: 'truncated'>)
    """
    line, end, _ = response.partition("\n")
    if truncated and not end:
        return Answer(missing=Outcome.TRUNCATED)
    if len(line) > MAX_BOX_CHARS:
        return Answer(missing=Outcome.TOO_LONG)
    return Answer(line.strip()) if line.strip() else Answer(missing=Outcome.NO_BOX)


def opening_of(prompt: str) -> str:
    """The mark of reasoning at the end of a prompt, or nothing.

    >>> opening_of("<|im_start|>assistant\\n<think>\\n"), opening_of("Your move?")
    ('<think>', '')
    """
    return next((mark for mark in OPENINGS if prompt.rstrip().endswith(mark)), "")


def without_end_marks(response: str) -> str:
    """`response` without the special tokens that end it.

    >>> without_end_marks("e4<|im_end|>"), without_end_marks("e4 </s><pad><pad>\\n")
    ('e4', 'e4 ')
    >>> without_end_marks("a<|channel|>final<|message|>")
    'a<|channel|>final<|message|>'
    """
    end = len(response)
    while mark := _END_MARK.search(response, max(0, end - 60), end):
        end = mark.start()
    return response[:end]


def with_think_tags(response: str) -> str:
    """`response` with the marks of reasoning of all models as `<think>` and `</think>`. Places do not change.

    >>> with_think_tags("[THINK]a[/THINK]b")
    '<think>a</think>b'
    >>> with_think_tags("<|channel|>analysis<|message|>a<|channel|>final<|message|>b")
    '<think>                       a</think>                   b'
    """
    if "THINK]" not in response and "<|channel|>" not in response:
        return response  # the pattern is slow, as it is tried at every character
    return _FOREIGN_MARK.sub(lambda m: ("<think>" if m[1] else "</think>").ljust(len(m[0])), response)


def after_reasoning(response: str) -> str:
    """The text after the last `</think>`, up to a `<think>` that is not closed.

    >>> after_reasoning("a<think>b</think>c<think>d")
    'c'
    """
    response = with_think_tags(response)
    tail = response[response.rfind("</think>") + len("</think>") :] if "</think>" in response else response
    return tail.partition("<think>")[0]


def before_answer(response: str) -> str:
    """The beginning of `response`, up to the last box. Without a box, only a text with `<think>` counts. The
    marks are those of `with_think_tags`."""
    response = with_think_tags(response)
    boxes = [match.start() for match in _OPEN_BOX.finditer(response)]
    if boxes:
        return response[: boxes[-1]]
    return response if "<think>" in response else ""


def empty_reasoning(response: str) -> str:
    r"""The beginning of `response` with nothing between its marks of reasoning: that of an answer without
    reasoning. Empty if it does not begin with such a mark, or the reasoning does not end.

    >>> empty_reasoning("<think>\nWhy?\n</think>\n\nSo \\boxed{e4}"), empty_reasoning("So \\boxed{e4}")
    ('<think>\n\n</think>\n\n', '')
    """
    tagged = with_think_tags(response)
    inside = tagged.removeprefix("<think>")
    thought, end, rest = inside.partition("</think>")
    if inside == tagged or not end:
        return ""
    first, last = len(thought) - len(thought.lstrip()), len(thought.rstrip())
    kept = thought[:first] + thought[max(first, last) :]
    return f"<think>{kept}</think>{rest[: len(rest) - len(rest.lstrip())]}"


def text_to_read(response: str, uci: str, *, chars: int) -> str:
    r"""The text before the last box, at most `chars` of it, with the chosen move in a box again.

    So a reader of claims knows which move the text chooses. `uci` is empty if it chooses none.

    >>> text_to_read(r"I play e4. \boxed{e4}", "e2e4", chars=9)
    'I play e4\n\n\\boxed{e2e4}'
    """
    text = before_answer(response)[:chars]
    return f"{text}\n\n\\boxed{{{uci}}}" if uci and text.strip() else text


def reasoning_of(response: str) -> str:
    r"""The text before the last box, without `<think>` tags. Without a box, only a text with this tag counts.

    >>> reasoning_of(r"<think>e4 is good.</think> \boxed{e4}"), reasoning_of("nothing")
    ('e4 is good.', '')
    """
    return before_answer(response).replace("<think>", "").replace("</think>", "").strip()


def peel(text: str) -> str:
    r"""Removes LaTeX, Markdown, quotes, move numbers and stray whitespace.

    >>> peel(r"**$\text{12... Qxf7\#}$**")
    'Qxf7#'
    """
    while not _PLAIN.fullmatch(text):
        peeled = _peel_once(text)
        if peeled == text:
            break
        text = peeled
    return text


def _peel_once(text: str) -> str:
    text = _MANGLED.sub(lambda match: _MANGLED_LETTERS[match[0]], text)
    text = unicodedata.normalize("NFKC", text).translate(_INVISIBLE)
    for pattern, plain in _MARKUP:
        text = pattern.sub(plain, text)
    text = text.strip()
    if match := _BRACKETS.fullmatch(text):
        text = match[match.lastindex or 0]
    if match := _MOVE_NUMBER.match(text):
        text = text[match.end() :]
    return text
