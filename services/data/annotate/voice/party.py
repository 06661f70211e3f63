"""A side as a subject of sentences: White, Black, I, we, the opponent; with verbs that agree."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_THIRD = {"have": "has", "be": "is", "do": "does", "go": "goes"}
_FIRST = {"be": "am"}
_PLURAL = {"be": "are"}


@dataclass(frozen=True, slots=True)
class Party:
    """`word` is the subject, `owner` its possessive, `object_` how it stands after a verb.

    Made for templates: `{side.has}` is "White has", `{side.do[take]}` is "White takes".
    """

    word: str
    owner: str
    object_: str

    def __str__(self) -> str:
        return self.word

    @property
    def has(self) -> str:
        """Subject and `have`."""
        return self.do["have"]

    @property
    def is_(self) -> str:
        """Subject and `be`."""
        return self.do["be"]

    @property
    def do(self) -> Mapping[str, str]:
        """Subject and any verb, looked up by its infinitive."""
        return _Verbs(self)

    def verb(self, infinitive: str) -> str:
        """The verb as it agrees with the subject."""
        if self.word == "I":
            return _FIRST.get(infinitive, infinitive)
        if self.word == "we":
            return _PLURAL.get(infinitive, infinitive)
        return _THIRD.get(infinitive) or third(infinitive)


class _Verbs(Mapping[str, str]):
    def __init__(self, party: Party) -> None:
        self._party = party

    def __getitem__(self, infinitive: str) -> str:
        return f"{self._party.word} {self._party.verb(infinitive)}"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def third(infinitive: str) -> str:
    """The third person singular of a verb.

    >>> [third(verb) for verb in ("take", "push", "parry", "go", "have", "be")]
    ['takes', 'pushes', 'parries', 'goes', 'has', 'is']
    """
    if infinitive in _THIRD:
        return _THIRD[infinitive]
    if infinitive.endswith("y") and infinitive[-2] not in "aeou":
        return infinitive[:-1] + "ies"
    return infinitive + ("es" if infinitive.endswith(("s", "sh", "ch", "x", "o")) else "s")


_DOUBLES = (
    "pin",
    "hit",
    "step",
    "put",
    "get",
    "let",
    "shut",
    "set",
    "run",
    "cut",
    "win",
    "sit",
    "stop",
    "drop",
    "grab",
    "chip",
)


def gerund(infinitive: str) -> str:
    """The form in -ing.

    >>> [gerund(verb) for verb in ("take", "pin", "parry", "be", "tie", "free")]
    ['taking', 'pinning', 'parrying', 'being', 'tying', 'freeing']
    """
    if infinitive in _DOUBLES:
        return infinitive + infinitive[-1] + "ing"
    if infinitive.endswith("ie"):
        return infinitive[:-2] + "ying"
    if infinitive.endswith("e") and not infinitive.endswith(("ee", "be")):
        return infinitive[:-1] + "ing"
    return infinitive + "ing"


def name_party(side_name: str, person: str, *, is_mover: bool) -> Party:
    """How a voice names a side: the mover is I, we or its colour; the other side its colour."""
    if is_mover and person == "i":
        return Party("I", "my", "me")
    if is_mover and person == "we":
        return Party("we", "our", "us")
    return Party(side_name, f"{side_name}'s", side_name)
