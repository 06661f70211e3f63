"""The weight of each token in the loss. No torch.

The loss of a batch is the sum over all its tokens of share x loss / normaliser. Shares and normaliser are
computed for the whole batch, so the gradient does not depend on how it is split into micro-batches. Masked
completions are neither summed nor counted.

    token      share 1        normaliser: all tokens               DAPO (arXiv 2503.14476, eq. 8)
    sequence   share 1/|o|    normaliser: completions              GRPO (2402.03300, eq. 3), GSPO (2507.18071)
    constant   share 1        normaliser: sum of token limits      Dr. GRPO (2503.20783, appendix A)
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.trainer.settings import LossWeights


@dataclass(frozen=True, slots=True)
class Extent:
    """The length of a completion that carries loss, and the most tokens that it could have had."""

    tokens: int
    limit: int


def share(tokens: int, by: LossWeights) -> float:
    """Returns the share of each token of a completion of `tokens` tokens.

    >>> share(4, "token"), share(4, "sequence"), share(4, "constant")
    (1.0, 0.25, 1.0)
    """
    return 1.0 / tokens if by == "sequence" else 1.0


def normaliser(extents: Sequence[Extent], by: LossWeights) -> float:
    """Returns the divisor of the sum over the batch; 1 for a batch without tokens.

    >>> batch = [Extent(4, 64), Extent(10, 64)]
    >>> normaliser(batch, "token"), normaliser(batch, "sequence"), normaliser(batch, "constant")
    (14, 2, 128)
    """
    if by == "sequence":
        return max(1, len(extents))
    return max(1, sum(extent.tokens if by == "token" else extent.limit for extent in extents))
