"""Attention among prompts and their completions that stand one after the other on a line of tokens.

All else in a transformer looks at tokens one by one, so a prompt that several completions follow is
computed once. Attention sees `Block`s: a prompt P over itself, a completion c over its prompt and itself.
That costs P^2 / 2 + the sum of c (P + c), where a mask over the line would cost the line's square.

Shapes: T tokens on the line, S stretches of Q queries and K keys, H heads, G of keys and values, D width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right


@dataclass(frozen=True, slots=True)
class Stretch:
    """`length` tokens from `start`; each sees itself, those before it, and the `context` from `begin`."""

    start: int
    length: int
    begin: int = 0
    context: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """Stretches of one context length, as places on the line. The Q queries are the last of the K keys.

    Shorter stretches are filled up on the right with their last token, where no query of theirs looks.
    """

    queries_SQ: torch.Tensor
    keys_SK: torch.Tensor


@dataclass(frozen=True, slots=True)
class Blocks:
    """Every token of the line is a query once: number `place_T[t]` of the blocks' queries in their order."""

    blocks: tuple[Block, ...]
    place_T: torch.Tensor

    @classmethod
    def of(cls, stretches: Sequence[Stretch], *, device: torch.device | str = "cpu") -> "Blocks":
        """Of stretches that cover a line."""
        made = [_block(bucket) for bucket in _buckets(stretches)]
        queries = torch.cat([block.queries_SQ.flatten() for block in made])
        # The first: where a token fills up its stretch, it comes again.
        place_T = torch.zeros(sum(stretch.length for stretch in stretches), dtype=torch.long).scatter_reduce(
            0, queries, torch.arange(len(queries)), "amin", include_self=False
        )
        blocks = [Block(block.queries_SQ.to(device), block.keys_SK.to(device)) for block in made]
        return cls(tuple(blocks), place_T.to(device))


def attend(
    queries_1HTD: torch.Tensor,
    keys_1GTD: torch.Tensor,
    values_1GTD: torch.Tensor,
    blocks: Blocks,
    *,
    scale: float | None = None,
    window: int | None = None,
) -> torch.Tensor:
    """What each token sees, [1, T, H, D]; of `window` keys at most, its own included.

    Heads of keys and values may be fewer than those of queries: each serves H / G neighbours.
    """
    line = [heads[0].transpose(0, 1) for heads in (queries_1HTD, keys_1GTD, values_1GTD)]
    parts = []
    for block in blocks.blocks:
        places = (block.queries_SQ, block.keys_SK, block.keys_SK)
        query, key, value = (_taken(heads, place) for heads, place in zip(line, places, strict=True))
        mask = _mask(block, window)
        # GPUs have no fast kernel that both masks and shares heads.
        shares = mask is None or query.device.type == "cpu"
        if not shares:
            key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key, value))
        seen_SHQD = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=shares
        )
        parts.append(seen_SHQD.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts).index_select(0, blocks.place_T)[None]


def _taken(heads_THD: torch.Tensor, places_SQ: torch.Tensor) -> torch.Tensor:
    """[S, H, Q, D]. Gradients come back by `index_add_`, which sums in a fixed order on a CPU."""
    taken_NHD = heads_THD.index_select(0, places_SQ.flatten())
    return taken_NHD.unflatten(0, places_SQ.shape).transpose(1, 2)


def _mask(block: Block, window: int | None) -> torch.Tensor | None:
    """Keys that a query sees, [Q, K]; None where plain causal attention says the same."""
    queries, keys = block.queries_SQ.shape[1], block.keys_SK.shape[1]
    windowed = window is not None and window < keys
    if queries == keys and not windowed:
        return None
    if not windowed and _knows_lower_right(block.keys_SK.device):
        bias: torch.Tensor = causal_lower_right(queries, keys)
        return bias
    return triangle(queries, keys, window=window, device=block.keys_SK.device)


def triangle(queries: int, keys: int, *, window: int | None, device: torch.device) -> torch.Tensor:
    """[Q, K]: a query, of the last of the keys, sees itself and those before it, of `window` in all."""
    own = keys - queries
    mask_QK = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(own)
    return mask_QK if window is None else mask_QK.triu(own - window + 1)


def _knows_lower_right(device: torch.device) -> bool:
    """Whether kernels there take the triangle as a word, which spares them a mask and half of the work."""
    return bool(device.type == "cuda")


def _buckets(stretches: Sequence[Stretch]) -> Iterator[list[Stretch]]:
    """Of one context length and of like length, so that little is filled up; the longest first."""
    bucket: list[Stretch] = []
    for stretch in sorted(stretches, key=lambda s: (s.context, s.length), reverse=True):
        if bucket and not _alike(bucket[0], stretch):
            yield bucket
            bucket = []
        bucket.append(stretch)
    if bucket:
        yield bucket


def _alike(longest: Stretch, stretch: Stretch) -> bool:
    spare = longest.length - stretch.length
    return stretch.context == longest.context and spare <= max(16, longest.length // 4)


def _block(bucket: Sequence[Stretch]) -> Block:
    steps_Q = torch.arange(bucket[0].length)
    queries = [stretch.start + steps_Q.clamp(max=stretch.length - 1) for stretch in bucket]
    contexts = [torch.arange(stretch.begin, stretch.begin + stretch.context) for stretch in bucket]
    queries_SQ = torch.stack(queries)
    return Block(queries_SQ, torch.cat([torch.stack(contexts), queries_SQ], dim=1))
