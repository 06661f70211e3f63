"""What a version should answer to the canary's text, which servers compare with their engine's answer."""

from dataclasses import dataclass
from typing import Self

import torch
from tokenizers import Tokenizer

from rookery.canary import BEGINNINGS, CANARY_TEXT, LIKELIEST, MAX_TOKENS, Canary
from rookery.hub import model_folder
from services.trainer.batches.micro_batches import MicroBatch, collate
from services.trainer.batches.rows import Row, ScoredCompletion
from services.trainer.model.policy import Policy

_DIGITS = 6


@dataclass(frozen=True, slots=True)
class CanaryScorer:
    """The text's tokens, and the base's log-probabilities after each of its beginnings, [B, V]."""

    token_ids: list[int]
    lengths: list[int]
    batch: MicroBatch
    base_BV: torch.Tensor

    @classmethod
    def of_base(cls, policy: Policy, model: str) -> Self | None:
        """Scores a policy that no version was loaded into, so its answers are the base's. None for a model
        without a fast tokenizer."""
        path = model_folder(model) / "tokenizer.json"
        if not path.is_file():
            return None
        ids = Tokenizer.from_file(str(path)).encode(CANARY_TEXT).ids[:MAX_TOKENS]
        lengths = sorted({max(1, len(ids) * place // BEGINNINGS) for place in range(1, BEGINNINGS + 1)})
        # Its last token is predicted by the whole text, and not looked at.
        completion = ScoredCompletion((*ids[1:], ids[0]), (0.0,) * len(ids), advantage=0.0, age=0)
        batch = collate([Row(tuple(ids[:1]), (completion,), 1.0)], device=policy.device)
        return cls(ids, lengths, batch, _after_beginnings(policy, batch, lengths))

    def content(self, policy: Policy) -> bytes:
        """`canary.json` of the policy's version. With sharded weights, all processes must call this.

        Half of the tokens are the base's likeliest, half the version's: any change makes the base's likeliest
        less likely, so these alone would not tell one version from another.
        """
        logs_BV = _after_beginnings(policy, self.batch, self.lengths)
        half, vocabulary = LIKELIEST // 2, logs_BV.shape[1]
        tokens_BC = self.base_BV.topk(min(half, vocabulary), dim=1).indices
        others_BV = logs_BV.scatter(1, tokens_BC, -torch.inf)
        others_BC = others_BV.topk(min(half, vocabulary - tokens_BC.shape[1]), dim=1).indices
        tokens_BC = torch.cat([tokens_BC, others_BC], dim=1)
        canary = Canary(
            token_ids=self.token_ids,
            lengths=self.lengths,
            tokens=tokens_BC.tolist(),
            logprobs=_rounded(logs_BV.gather(1, tokens_BC)),
            base=_rounded(self.base_BV.gather(1, tokens_BC)),
        )
        return canary.model_dump_json().encode()


def _after_beginnings(policy: Policy, batch: MicroBatch, lengths: list[int]) -> torch.Tensor:
    return policy.next_token_logprobs(batch)[[length - 1 for length in lengths]]


def _rounded(values_BC: torch.Tensor) -> list[list[float]]:
    return [[round(value, _DIGITS) for value in row] for row in values_BC.tolist()]
