"""The records that pass between services, from a position to a scored group of completions.

They are frozen dataclasses. `rookery.codec` converts them to protobuf and back; pydantic makes an HTTP API of
`ScoreItem` and `Verdict` from what is said here.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal, cast

from pydantic import ConfigDict, StrictBool

from rookery.advantages import TurnReward

TRACE_VERSION = 2
"""Incremented with every incompatible change of `TraceGroup`. Readers refuse later versions. In version 1, a
trace was a completion and a verdict: it is read as one turn."""

_IN_JSON = ConfigDict(use_attribute_docstrings=True, json_schema_serialization_defaults_required=True)
"""Of records that the HTTP API answers with: all fields are there, and OpenAPI has their descriptions."""


class Phase(StrEnum):
    """The phase of the game that a position belongs to."""

    OPENING = "opening"
    MIDDLEGAME = "middlegame"
    ENDGAME = "endgame"


Split = Literal["train", "heldout", "all"]
"""Games to draw from: a twentieth of them, by a hash of the moves, is held out."""


class Outcome(StrEnum):
    """How a completion was read. Every outcome but LEGAL has a lower reward than any legal move."""

    LEGAL = "legal"
    NO_BOX = "no_box"
    TRUNCATED = "truncated"
    EMPTY_BOX = "empty_box"
    TOO_LONG = "too_long"
    UNPARSABLE = "unparsable"
    AMBIGUOUS = "ambiguous"
    ILLEGAL = "illegal"
    NULL_MOVE = "null_move"


@dataclass(frozen=True, slots=True)
class Position:
    """A position of a game, and the task to solve on it.

    `ply` is the number of half-moves played before it. `last_moves` are the moves before it, in UCI, oldest
    first: all of its game, if they are known. `task` names a task of the reward service; empty means "choose
    a move". `move` (UCI) is the move that the task `A` is about. `target` is a data set's own answer to `P`
    or `A`, by which answers are judged; if it is empty, they are judged by the engine and the rules.
    `episode` is what is done with it, as `rookery.episodes` reads it; empty means one answer.
    """

    id: str
    fen: str
    ply: int
    phase: Phase
    game_id: str
    last_moves: tuple[str, ...] = ()
    white_elo: int | None = None
    black_elo: int | None = None
    task: str = ""
    move: str = ""
    target: str = ""
    episode: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A position as the model sees it. `fen` is the board on which the answer is read. It differs from the
    position's FEN if the style mirrors the board so that the side to move is White. `tools` are the schemas
    of the tools that the chat template shows, in JSON; empty if there are none, or the prompt is that of a
    turn that continues."""

    style: str
    messages: tuple[Message, ...]
    fen: str
    tools: str = ""


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """Identifies an immutable adapter: its number and the SHA-256 of its weights."""

    number: int
    sha256: str

    @property
    def name(self) -> str:
        """The model name vLLM serves it under, as in `policy-v000042`."""
        return policy_name(self.number)


def policy_name(number: int) -> str:
    """The model name of version `number`.

    >>> policy_name(42)
    'policy-v000042'
    """
    return f"policy-v{number:06d}"


@dataclass(frozen=True, slots=True)
class Adapter:
    """A committed LoRA adapter on disk: `path` is the directory that holds its safetensors. `base_model` is
    what it was trained on, by name and content: see `rookery.hub.identity`."""

    version: PolicyVersion
    path: str
    base_model: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters. RL rollouts use no top-p or top-k, so that importance ratios are defined."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 64


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion. `logprobs[i]` is log p(token_ids[i]) under the policy that sampled it. If the prompt ends
    with a mark that opens reasoning, such as `<think>`, `text` begins with it."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    seed: int

    @property
    def truncated(self) -> bool:
        """Whether the token limit cut it short."""
        return self.finish_reason == "length"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a part of a response changes in the choice of the move (`rookery.influence`)."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    start: int
    end: int
    """The part is `response[start:end]`; all of the reasoning if both are 0."""
    regret: float
    """The expected regret without it less the one with it, in [-1, 1]."""


@dataclass(frozen=True, slots=True)
class ScoreItem:
    """A position, what a model answered, and what it was asked."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    fen: str
    """The position, of chess or Chess960. It must be possible and have a legal move."""
    response: str
    """The completion only, without the prompt."""
    _: KW_ONLY
    task: str = ""
    """What was asked: `move` (or empty), `game` (the first line is the move), or RookWorld's `P` or `A`."""
    scheme: str = ""
    """`delta`, `best`, `accuracy`, `minmax`, `model`, or a sum: `delta+0.1*format`. Empty: the default."""
    truncated: StrictBool = False
    """The completion was cut at its token limit."""
    move: str = ""
    """Task `A` only: the move that the model was asked about, in UCI."""
    target: str = ""
    """Tasks `P` and `A` only: the right answer, to judge by it instead of by the engine and the rules."""
    effects: tuple[Effect, ...] = ()
    """Of sentences and of all of the reasoning, for the term `influence`, which is 0 without them."""


@dataclass(frozen=True, slots=True)
class Move:
    """A legal move in both notations."""

    uci: str
    san: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Engine score for the side to move: exactly one of `cp` (centipawns) and `mate` (moves) is set."""

    __pydantic_config__: ClassVar = _IN_JSON

    cp: int | None = None
    mate: int | None = None


@dataclass(frozen=True, slots=True)
class EngineStamp:
    """The engine that judged the answer."""

    id: str
    nodes: int
    """Nodes searched for this verdict; 0 if it needed no search."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a text says about the board at `text[start:end]`. Places count Unicode code points."""

    __pydantic_config__: ClassVar = _IN_JSON

    concept: str
    """The kind of claim, such as `passed pawn`."""
    start: int
    end: int
    true: bool | None = None
    """Not known if only an engine could tell."""
    weight: float | None = None
    """What it counts for in the term `truth` if it is true, from 0 to 1: 0 for what the prompt or the answer
    states anyway. Older records have no weights: there each claim counts 1."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of the text before the answer, at `text[start:end]`."""

    __pydantic_config__: ClassVar = _IN_JSON

    start: int
    end: int
    read: bool
    """Whether all of it was understood."""
    claims: tuple[Claim, ...] = ()
    effect: float | None = None
    """The expected regret that it saves, if the caller has measured it."""
    influence: float | None = None
    """What it earns for that in the term `influence`."""


@dataclass(frozen=True, slots=True)
class ProcessReward:
    """The reward of a step of the reasoning, `text[start:end]`, by itself."""

    start: int
    end: int
    reward: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one completion. Win probabilities and regret are in [0, 1], for the side to move."""

    __pydantic_config__: ClassVar = _IN_JSON

    reward: float
    """The sum of the components."""
    outcome: Outcome
    reward_version: str
    """Names all that the reward depends on besides the item. Compare rewards only if it is equal."""
    move: Move | None = None
    """The answer, if it is a legal move."""
    best: Move | None = None
    """The engine's best move, if the answer is a legal one."""
    win_before: float | None = None
    """Win probability after the engine's best move."""
    win_after: float | None = None
    """Win probability after the answer."""
    regret: float | None = None
    """`win_before - win_after`, at least 0."""
    eval_before: Evaluation | None = None
    eval_after: Evaluation | None = None
    components: Mapping[str, float] = field(default_factory=dict)
    """The weighted terms of the scheme."""
    engine: EngineStamp | None = None
    sentences: tuple[Sentence, ...] = ()
    """What the text before the answer says. Empty unless the scheme has `truth` or `influence` and the answer
    is legal."""
    process_rewards: tuple[ProcessReward, ...] = ()
    """Those of the moves named before the answer; `reward` does not contain them. Empty unless the scheme has
    `candidates` or `values` and the answer is legal."""
    value_rewards: tuple[ProcessReward, ...] = ()
    """Those of the win probabilities that the text states of these moves, if the scheme has `values`."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One completion of an episode, and what came of it. `prompt` and `policy` are None if they are those of
    the group, as in most first turns."""

    completion: Completion
    verdict: Verdict | None
    """The judgement of its answer; None if it gave none, as a call of a tool. The last turn has one."""
    prompt: Prompt | None = None
    prompt_token_ids: tuple[int, ...] = ()
    """The tokens of `prompt`; empty if it is the group's."""
    continues: bool = False
    """The tokens of its prompt begin with all those of the turn before it: `prompt_token_ids` are the others,
    and `prompt` has the messages after that turn's answer, or the whole text if it is one message."""
    policy: PolicyVersion | None = None
    observation: str = ""
    """What the environment said after it."""
    rewards: Mapping[str, float] = field(default_factory=dict)
    """What the environment paid for it besides the verdict, by name."""
    role: str = ""
    """Whose turn it was, if turns of an episode may be those of different players: white or black."""

    @property
    def reward(self) -> float:
        return (self.verdict.reward if self.verdict else 0.0) + sum(self.rewards.values())


@dataclass(frozen=True, slots=True)
class Trace:
    """An episode, as its turns. A move on one position is an episode of one turn."""

    id: str
    turns: tuple[Turn, ...]

    @property
    def completion(self) -> Completion:
        """The last one."""
        return self.turns[-1].completion

    @property
    def verdict(self) -> Verdict:
        """That of the last turn, which `rookery.codec` checks to have one."""
        return cast(Verdict, self.turns[-1].verdict)

    @property
    def reward(self) -> float:
        """The return: the sum over its turns."""
        return sum(turn.reward for turn in self.turns)


@dataclass(frozen=True, slots=True)
class TraceGroup:
    """All traces of one position, generated by exactly one policy version, unless later turns name another.
    Prompt and policy are those of the first turns. Times are in seconds."""

    id: str
    run: str
    position: Position
    prompt: Prompt
    prompt_token_ids: tuple[int, ...]
    policy: PolicyVersion
    base_model: str
    sampling: Sampling
    traces: tuple[Trace, ...]
    created_at: float
    generation_s: float = 0.0
    reward_s: float = 0.0

    @property
    def turns(self) -> list[Turn]:
        """Those of all traces, in their order."""
        return [turn for trace in self.traces for turn in trace.turns]

    @property
    def turn_ids(self) -> list[str]:
        """The id of each of `turns`: that of its trace for the first, as `g-3.1` for the second."""
        return [
            f"{trace.id}.{number}" if number else trace.id
            for trace in self.traces
            for number in range(len(trace.turns))
        ]

    @property
    def verdicts(self) -> list[Verdict]:
        """Those of all turns that have one."""
        return [turn.verdict for turn in self.turns if turn.verdict]

    def prompt_of(self, turn: Turn) -> Prompt:
        return turn.prompt or self.prompt

    def prompt_tokens_of(self, turn: Turn) -> tuple[int, ...]:
        return turn.prompt_token_ids if turn.prompt else self.prompt_token_ids

    def policy_of(self, turn: Turn) -> PolicyVersion:
        return turn.policy or self.policy

    @property
    def rewards(self) -> tuple[float, ...]:
        return tuple(trace.reward for trace in self.traces)

    @property
    def turn_rewards(self) -> list[list[TurnReward]]:
        """What the turns are paid, by trace."""
        return [
            [
                TurnReward(
                    turn.verdict.reward if turn.verdict else 0.0, sum(turn.rewards.values()), turn.role
                )
                for turn in trace.turns
            ]
            for trace in self.traces
        ]

    @property
    def reward_versions(self) -> tuple[str, ...]:
        """The distinct reward versions of its verdicts. Rewards can be compared only if there is one."""
        return tuple(sorted({verdict.reward_version for verdict in self.verdicts}))
