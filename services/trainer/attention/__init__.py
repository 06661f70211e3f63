"""Attention for prompts and completions that are packed into one sequence of tokens.

The other parts of a transformer process each token alone, so a prompt with several completions is computed
once. Attention is computed in `Block`s: a prompt P attends to itself, a completion c to its prompt and
itself. That costs P^2 / 2 + the sum of c (P + c). A mask over the whole sequence would cost its square.

Shapes: T tokens of the packed sequence, S segments of Q queries and K keys, H query heads, G heads of keys
and values, D width of a head.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right


@dataclass(frozen=True, slots=True)
class Segment:
    """`length` tokens from `start`. Each attends to itself, to the tokens of the segment before it, and to
    the `context` tokens from `context_start`."""

    start: int
    length: int
    context_start: int = 0
    context: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """Segments of one context length, as positions in the sequence. Queries are the last Q of the K keys.
    Shorter segments are padded on the right with their last token. Their own queries never attend to it."""

    queries_SQ: torch.Tensor
    keys_SK: torch.Tensor


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a packed sequence. `queries` and `keys` are the positions of all blocks' queries and
    keys, in order, so that one copy serves all blocks. Token t is number `place_T[t]` of these queries."""

    blocks: tuple[Block, ...]
    queries: torch.Tensor
    keys: torch.Tensor
    place_T: torch.Tensor

    @classmethod
    def of(cls, segments: Sequence[Segment], *, device: torch.device | str = "cpu") -> "Blocks":
        """Builds the blocks of segments that cover a packed sequence."""
        cpu_blocks = [_block(bucket) for bucket in _buckets(segments)]
        queries = torch.cat([block.queries_SQ.flatten() for block in cpu_blocks])
        keys = torch.cat([block.keys_SK.flatten() for block in cpu_blocks])
        # "amin" takes the first occurrence: a token used as padding occurs more than once.
        place_T = torch.zeros(sum(segment.length for segment in segments), dtype=torch.long).scatter_reduce(
            0, queries, torch.arange(len(queries)), "amin", include_self=False
        )
        blocks = [Block(block.queries_SQ.to(device), block.keys_SK.to(device)) for block in cpu_blocks]
        return cls(tuple(blocks), queries.to(device), keys.to(device), place_T.to(device))


def attend(
    queries_1HTD: torch.Tensor,
    keys_1GTD: torch.Tensor,
    values_1GTD: torch.Tensor,
    blocks: Blocks,
    *,
    scale: float | None = None,
    window: int | None = None,
) -> torch.Tensor:
    """Returns the attention output of each token, [1, T, H, D], over at most `window` keys with its own.
    There may be fewer heads of keys and values than of queries: each is shared by H / G query heads."""
    # Under autocast rotary embeddings leave queries and keys in float32. A kernel wants one type of all, and
    # autocast does not reach the one of `causal_lower_right`.
    queries_1HTD, keys_1GTD = queries_1HTD.to(values_1GTD.dtype), keys_1GTD.to(values_1GTD.dtype)
    if queries_1HTD.device.type == "cpu" and queries_1HTD.dtype == torch.bfloat16:
        # A CPU's kernel takes four times as long backward in bfloat16, to which autocast would return.
        heads = (queries_1HTD.float(), keys_1GTD.float(), values_1GTD.float())
        with torch.autocast("cpu", enabled=False):
            return attend(*heads, blocks, scale=scale, window=window).to(torch.bfloat16)
    inputs = zip(
        _by_block(queries_1HTD, blocks.queries, [block.queries_SQ for block in blocks.blocks]),
        _by_block(keys_1GTD, blocks.keys, [block.keys_SK for block in blocks.blocks]),
        _by_block(values_1GTD, blocks.keys, [block.keys_SK for block in blocks.blocks]),
        strict=True,
    )
    parts = []
    for block, (query, key, value) in zip(blocks.blocks, inputs, strict=True):
        mask = _mask(block, window)
        # GPUs have no fast kernel with both a mask and shared heads, so keys and values are repeated.
        shares = mask is None or query.device.type == "cpu"
        if not shares:
            key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key, value))
        output_SHQD = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=shares
        )
        parts.append(output_SHQD.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts).index_select(0, blocks.place_T)[None]


attend_uncompiled = torch.compiler.disable(attend)
"""`attend` as it is, also within compiled code: every batch of rollouts has blocks of other shapes."""


def _by_block(
    heads_1HTD: torch.Tensor, positions: torch.Tensor, places: Sequence[torch.Tensor]
) -> Iterator[torch.Tensor]:
    """Yields the heads at the places of each block, [S, H, Q, D]. `positions` are all places, flat.

    One copy for all blocks, since the gradient of each copy is as large as the whole sequence's. The backward
    pass uses `index_add_`, which sums in a fixed order on a CPU.
    """
    gathered_NHD = heads_1HTD[0].transpose(0, 1).index_select(0, positions)
    for part_NHD, place_SQ in zip(
        gathered_NHD.split([len(p.flatten()) for p in places]), places, strict=True
    ):
        yield part_NHD.unflatten(0, place_SQ.shape).transpose(1, 2)


def _mask(block: Block, window: int | None) -> torch.Tensor | None:
    """Returns a mask of the keys each query attends to, [Q, K]; None if plain causal attention fits."""
    queries, keys = block.queries_SQ.shape[1], block.keys_SK.shape[1]
    windowed = window is not None and window < keys
    if queries == keys and not windowed:
        return None
    if not windowed and _has_lower_right_kernel(block.keys_SK.device):
        return causal_lower_right(queries, keys)
    return causal_mask(queries, keys, window=window, device=block.keys_SK.device)


def causal_mask(queries: int, keys: int, *, window: int | None, device: torch.device) -> torch.Tensor:
    """Returns a mask [Q, K]. The queries are the last keys; each attends to itself and the keys before it.
    With `window`, each attends to the last `window` of those keys only."""
    offset = keys - queries
    mask_QK = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(offset)
    return mask_QK if window is None else mask_QK.triu(offset - window + 1)


def _has_lower_right_kernel(device: torch.device) -> bool:
    """Returns whether the device's kernels take `causal_lower_right`; it saves a mask and half the work."""
    return bool(device.type == "cuda")


def _buckets(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Yields segments of the same context length and similar length, to pad little; the longest first."""
    bucket: list[Segment] = []
    for segment in sorted(segments, key=lambda s: (s.context, s.length), reverse=True):
        longest = bucket[0] if bucket else segment
        padding = longest.length - segment.length
        if segment.context != longest.context or padding > max(16, longest.length // 4):
            yield bucket
            bucket = []
        bucket.append(segment)
    if bucket:
        yield bucket


def _block(bucket: Sequence[Segment]) -> Block:
    steps_Q = torch.arange(bucket[0].length)
    queries = [segment.start + steps_Q.clamp(max=segment.length - 1) for segment in bucket]
    contexts = [
        torch.arange(segment.context_start, segment.context_start + segment.context) for segment in bucket
    ]
    queries_SQ = torch.stack(queries)
    return Block(queries_SQ, torch.cat([torch.stack(contexts), queries_SQ], dim=1))
