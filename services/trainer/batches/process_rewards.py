"""Advantages of single tokens, where the moves and sentences of the reasoning are rewarded by themselves.

The k-th named moves of a group's answers are compared with each other, as GRPO compares whole answers,
whatever the baseline of the answers is. They are divided by their standard deviation if the answers are. So
are the k-th win probabilities that texts state of moves, and the k-th sentences. A sentence's reward is the
mean of its claims': a false one has -1, a true one weight / n, where the weight is that of the term `truth`,
0 for what is given, and n sentences of the group truly claim something of its kind (fitness sharing, Goldberg
and Richardson 1987). Otherwise the policy would soon say only what is easy to say truly. Of an answer whose
sentences' influence is known, a sentence's reward is what it earns for that instead: if above 0, shared with
the most frequent of its claims.

The tokens of a move or a value get its advantage, other tokens of a sentence that of the sentence, and all
others that of the answer. This is the process supervision of DeepSeekMath (arXiv 2402.03300, section 4.1.3),
which also adds the advantages of later steps, since they continue an argument. Candidate moves do not: what
is left for the next one is worse if the first was good.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from statistics import fmean

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from rookery.advantages import group_advantages
from rookery.answers import OPENINGS
from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from rookery.hub import model_folder
from rookery.trace import Completion, ProcessReward, TraceGroup, Turn, Verdict

logger = logging.getLogger(__name__)


@cache
def tokenizer_of(model: str) -> Tokenizer:
    """The tokenizer of a model, which must be a fast one, or one that transformers makes fast. Raises
    `SetupError` if the model has none."""
    path = (folder := model_folder(model)) / "tokenizer.json"
    if path.is_file():
        return Tokenizer.from_file(str(path))
    from transformers import AutoTokenizer  # slow to import

    try:
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False
        ).backend_tokenizer
    except (AttributeError, OSError, ValueError) as error:
        raise SetupError(
            f"process_rewards needs the places of tokens in the text, but there is no {path}: {error}"
        ) from error
    return tokenizer


def token_advantages(
    groups: Sequence[TraceGroup], outcomes: Sequence[Sequence[float]], *, settings: TrainerSettings
) -> dict[str, tuple[float, ...]]:
    """The advantages of each token by the id of its turn, for turns with process rewards.

    `outcomes` has the advantages of the whole answers, one per turn, by group. Turns of the same number and
    role are compared with each other. A turn whose tokens do not make its text is left out.
    """
    by_turn = dict[str, tuple[float, ...]]()
    for group, outcome in zip(groups, outcomes, strict=True):
        turns = iter(zip(group.turn_ids, group.turns, outcome, strict=True))
        compared = dict[tuple[str, int], list[tuple[str, Turn, float]]]()
        for trace in group.traces:
            played = Counter[str]()
            for id, turn, value in islice(turns, len(trace.turns)):
                compared.setdefault((turn.role, played[turn.role]), []).append((id, turn, value))
                played[turn.role] += 1
        for peers in compared.values():
            by_turn |= _token_advantages_of_peers(peers, settings=settings)
    if not by_turn:
        _warn_once()
    return by_turn


@cache
def _warn_once() -> None:
    logger.warning(
        "--process-rewards: no token of this batch has one. The reward's scheme must have candidates, "
        "values, truth or influence, and the tokenizer must make the completion's text"
    )


def _token_advantages_of_peers(
    turns: Sequence[tuple[str, Turn, float]], *, settings: TrainerSettings
) -> dict[str, tuple[float, ...]]:
    tokenizer = tokenizer_of(str(settings.model))
    judged = [(id, turn.completion, turn.verdict, value) for id, turn, value in turns if turn.verdict]
    true_claims = Counter(
        concept
        for _, _, verdict, _ in judged
        for sentence in verdict.sentences
        for concept in {claim.concept for claim in sentence.claims if claim.true}
    )
    # Moves and values come last: those that are part of a sentence keep their own advantage.
    answers = {
        id: _ScoredAnswer(steps, spans, [advantage] * len(spans))
        for id, completion, verdict, advantage in judged
        if any(map(any, steps := _steps(completion, verdict, true_claims)))
        and (spans := token_spans(tokenizer, completion))
    }
    for kind in range(3):
        for place in range(max((len(answer.steps[kind]) for answer in answers.values()), default=0)):
            _set_step_advantages(list(answers.values()), kind, place, settings=settings)
    return {id: tuple(answer.advantages) for id, answer in answers.items()}


@dataclass(frozen=True, slots=True)
class _ScoredAnswer:
    """The rewarded steps of an answer, by kind and place, the spans of its tokens, and their advantages."""

    steps: tuple[Sequence[ProcessReward | None], ...]
    spans: list[tuple[int, int]]
    advantages: list[float]


def _set_step_advantages(
    answers: Sequence[_ScoredAnswer], kind: int, place: int, *, settings: TrainerSettings
) -> None:
    """Gives the tokens of the steps of one kind at one place their advantages over each other."""
    compared = [
        (step, answer)
        for answer in answers
        if place < len(answer.steps[kind]) and (step := answer.steps[kind][place])
    ]
    if not compared:
        return
    values = group_advantages(
        [step.reward for step, _ in compared],
        normalise=settings.normalise and settings.baseline != "none",
        sigma_floor=settings.sigma_floor,
    )
    for (step, answer), value in zip(compared, values, strict=True):
        for token, (start, end) in enumerate(answer.spans):
            if start < step.end and step.start < end:
                answer.advantages[token] = value


def _steps(
    completion: Completion, verdict: Verdict, true_claims: Mapping[str, int]
) -> tuple[Sequence[ProcessReward | None], ...]:
    """The rewards of the sentences, the moves and the values."""
    sentences = _sentence_rewards(completion, verdict, true_claims)
    return sentences, verdict.process_rewards, verdict.value_rewards


def _sentence_rewards(
    completion: Completion, verdict: Verdict, true_claims: Mapping[str, int]
) -> list[ProcessReward | None]:
    """The reward of each sentence, from -1 to 1; None of one that claims nothing that the rules decide.

    `true_claims` counts the sentences of the group that make a true claim, by concept. In "e2e4 frees the
    bishop", the move was chosen before the claim about it: its tokens are left out.
    """
    rewards = list[ProcessReward | None]()
    measured = any(sentence.influence is not None for sentence in verdict.sentences)
    for sentence in verdict.sentences:
        shared = max((true_claims[claim.concept] for claim in sentence.claims if claim.true), default=1)
        earned = sentence.influence
        if measured:
            values = [] if earned is None else [earned / shared if earned > 0 else earned]
        else:
            values = [
                (1.0 if claim.weight is None else claim.weight) / true_claims[claim.concept]
                if claim.true
                else -1.0
                for claim in sentence.claims
                if claim.true is not None
            ]
        start, move = sentence.start, verdict.move
        for name in (move.uci, move.san) if move else ():
            if completion.text.startswith(name, start):
                start += len(name)
        rewards.append(ProcessReward(start, sentence.end, fmean(values)) if values else None)
    return rewards


def token_spans(tokenizer: Tokenizer, completion: Completion) -> list[tuple[int, int]]:
    """Where each token is in the text: its start and end. Empty if the tokens do not make this text. Of the
    tokens of one character, the last has it. The token that ended the text is behind its end."""
    stream, spans, text = DecodeStream(skip_special_tokens=False), [], ""
    for token in completion.token_ids:
        try:
            piece = stream.step(tokenizer, token) or ""
        except Exception:  # bytes that are no text, from a tokenizer with bytes: it has no other error type
            return []
        spans.append((len(text), len(text) + len(piece)))
        text += piece
    # SentencePiece drops the first space; the prompt may open the reasoning.
    for prefix in ("", " ", *OPENINGS):
        if (prefix + text).startswith(completion.text):
            return [(start + len(prefix), end + len(prefix)) for start, end in spans]
    return []
