"""Files of tensors, written one by one: the bytes of safetensors, without a copy of the whole."""

import hashlib
import weakref
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from services.trainer.versions import files
from services.trainer.versions.files import StoredTensor, TensorFile
from tests.unit.trainer.contents import content

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.uint8, torch.int64, torch.int32]


@given(
    tensors=st.dictionaries(
        st.text(max_size=8).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3)),
        max_size=5,
    ),
    metadata=st.sampled_from([{}, {"format": "pt"}]),
)
def test_the_bytes_are_those_of_safetensors(
    tensors: dict[str, tuple["torch.dtype", list[int]]], metadata: dict[str, str]
) -> None:
    made = {name: torch.ones(shape).to(dtype) for name, (dtype, shape) in tensors.items()}
    own = TensorFile({name: StoredTensor.of(tensor) for name, tensor in made.items()}, metadata)
    assert content(own) == save(made, metadata=metadata or None)


def test_a_transposed_and_widened_tensor_is_stored_as_such() -> None:
    weight = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    own = TensorFile({"w": StoredTensor.of(weight, dtype=torch.float32, transposed=True)})
    assert content(own) == save({"w": weight.T.float().contiguous()})


def test_tensors_are_read_one_by_one_and_let_go(tmp_path: Path) -> None:
    made: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def read() -> "torch.Tensor":
        alive.append(sum(tensor() is not None for tensor in made))
        tensor = torch.zeros(3)
        made.append(weakref.ref(tensor))
        return tensor

    file = TensorFile({str(i): StoredTensor((3,), torch.float32, read) for i in range(5)})
    assert not made
    digest = files.write_file(tmp_path / "t.safetensors", file)
    assert len(made) == 5
    assert max(alive) <= 1, "at most the one being written, while the next is read"
    assert hashlib.sha256((tmp_path / "t.safetensors").read_bytes()).hexdigest() == digest


def test_a_tensor_of_another_shape_than_was_said_is_refused(tmp_path: Path) -> None:
    file = TensorFile({"w": StoredTensor((3,), torch.float32, lambda: torch.zeros(2))})
    with pytest.raises(ValueError, match=r"'w' has shape \[2\], not \[3\]"):
        files.write_file(tmp_path / "t", file)
