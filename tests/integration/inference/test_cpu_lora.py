"""Our LoRA for vLLM's CPU build against vLLM's own, and where that of 0.32 is wrong."""

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.torch]

torch = pytest.importorskip("torch")

from services.inference.server.engine_plugin import add_lora_linear  # noqa: E402

SLOTS, RANK, WIDTH = 4, 8, 24
SLICES = (32, 16)


class Wrapper:
    """What the function reads of vLLM's wrapper."""

    def __init__(self, slots: list[int]) -> None:
        self.token_lora_indices = torch.tensor(slots)


def _weights() -> "tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]":
    torch.manual_seed(0)
    a = tuple(torch.randn(SLOTS, 1, RANK, WIDTH) for _ in SLICES)
    return a, tuple(torch.randn(SLOTS, 1, size, RANK) for size in SLICES)


def _stock(slots: list[int], x: "torch.Tensor", y: "torch.Tensor") -> "torch.Tensor":
    from vllm.lora.ops.torch_ops import bgmv_expand_slice, bgmv_shrink

    indices, y, start = torch.tensor(slots), y.clone(), 0
    for a, b, size in zip(*_weights(), SLICES, strict=True):
        shrunk = torch.zeros(len(slots), RANK)
        bgmv_shrink(x, a, shrunk, indices, 0.5)
        bgmv_expand_slice(shrunk, b, y, indices, start, size, True)
        start += size
    return y


@pytest.mark.parametrize("slots", [[2] * 5, [0, 3, 3, 1, 0], [1]])
def test_with_an_adapter_the_numbers_are_vllms(slots: list[int]) -> None:
    x, y = torch.randn(len(slots), WIDTH), torch.randn(len(slots), sum(SLICES))
    expected = _stock(slots, x, y)
    add_lora_linear(Wrapper(slots), y, x, *_weights(), 0.5, SLICES)
    assert torch.allclose(y, expected, atol=1e-4)


@pytest.mark.parametrize("slots", [[-1, 2, -1, 0], [-1, -1]])
def test_without_an_adapter_nothing_is_added(slots: list[int]) -> None:
    x, y = torch.randn(len(slots), WIDTH), torch.randn(len(slots), sum(SLICES))
    before, stock = y.clone(), _stock(slots, x, y)
    add_lora_linear(Wrapper(slots), y, x, *_weights(), 0.5, SLICES)
    base = torch.tensor(slots) < 0
    assert torch.equal(y[base], before[base])
    assert torch.allclose(y[~base], stock[~base], atol=1e-4)
    from vllm import __version_tuple__ as version

    assert torch.allclose(stock[base], before[base]) == (version >= (0, 33)), "0.33 has mended it"
