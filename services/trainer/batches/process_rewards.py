"""Advantages of single tokens, where steps of the reasoning are rewarded by themselves: process supervision.

The k-th steps of a group's answers are compared with each other, as GRPO compares whole answers. A token of a
step gets the step's advantage, any other token that of the answer. DeepSeekMath (arXiv 2402.03300, section
4.1.3) also adds the advantages of later steps, since they continue an argument. Candidate moves do not: what
is left for the next one is worse if the first was good.
"""

from collections.abc import Sequence
from functools import cache

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from rookery.errors import SetupError
from rookery.hub import model_folder
from rookery.trace import Completion, TraceGroup
from services.trainer.batches.advantages import advantages
from services.trainer.settings import TrainerSettings


@cache
def tokenizer_of(model: str) -> Tokenizer:
    """The tokenizer of a model, which must be a fast one.

    Raises:
        SetupError: the model has none.
    """
    path = model_folder(model) / "tokenizer.json"
    if not path.is_file():
        raise SetupError(f"--process-rewards needs the places of tokens in the text, but there is no {path}")
    return Tokenizer.from_file(str(path))


def token_advantages(
    group: TraceGroup, outcome: Sequence[float], *, settings: TrainerSettings
) -> dict[str, tuple[float, ...]]:
    """The advantages of each token by the id of its trace, for traces with process rewards.

    `outcome` has the advantages of the whole answers. A trace whose tokens do not make its text has none.
    """
    tokenizer = tokenizer_of(str(settings.model))
    found = {
        trace.id: (trace.verdict.process_rewards, spans, [advantage] * len(spans))
        for trace, advantage in zip(group.traces, outcome, strict=True)
        if trace.verdict.process_rewards and (spans := token_spans(tokenizer, trace.completion))
    }
    for place in range(max((len(steps) for steps, _, _ in found.values()), default=0)):
        compared = [(steps[place], spans, own) for steps, spans, own in found.values() if place < len(steps)]
        (values,) = advantages(
            [[step.reward for step, _, _ in compared]],
            baseline=settings.baseline,
            normalise=settings.normalise,
            averages=None,
            sigma_floor=settings.sigma_floor,
        )
        for (step, spans, own), value in zip(compared, values, strict=True):
            for token, (start, end) in enumerate(spans):
                if start < step.end and step.start < end:
                    own[token] = value
    return {trace: tuple(own) for trace, (_, _, own) in found.items()}


def token_spans(tokenizer: Tokenizer, completion: Completion) -> list[tuple[int, int]]:
    """Where each token is in the text: its start and end. Empty if the tokens do not make this text.

    Of the tokens of one character, the last has it; special tokens have no text.
    """
    stream, spans, text = DecodeStream(skip_special_tokens=True), [], ""
    for token in completion.token_ids:
        piece = stream.step(tokenizer, token) or ""
        spans.append((len(text), len(text) + len(piece)))
        text += piece
    return spans if completion.text.startswith(text) or text.startswith(completion.text) else []
