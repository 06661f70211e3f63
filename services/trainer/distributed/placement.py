"""The placement of weights: the device of a process, and its shards of a model.

Weights are sharded with FSDP2 (`torch.distributed.fsdp.fully_shard`). With an adapter, the decoder layers of
the frozen base are sharded. The adapter, the embeddings and the head stay whole in every process, so the
adapter, its optimizer and its files are as in a single process. If all weights are trained, all are sharded,
with their gradients and Adam's moments.
"""

import os
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from rookery.config.conditions import Precision
from rookery.config.finetune import FinetuneSettings
from rookery.config.trainer import Sharding, TrainerSettings
from rookery.devices import BF16_CAPABILITY, position
from rookery.errors import SetupError

S = TypeVar("S", bound=TrainerSettings | FinetuneSettings)


def device_named(name: str) -> torch.device:
    """Returns the device of a name: `cpu`, `auto`, or a GPU's index or id, as `rookery.devices` counts.
    Raises `SetupError` if there is no such GPU, or `name` stands for several devices."""
    if "," in name:
        raise SetupError(f"--device {name} names several devices: this command uses one")
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    # Always with an index, which `torch.cuda.set_device` needs.
    place = 0 if name == "auto" else position(name)
    if place >= (gpus := torch.cuda.device_count()):
        raise SetupError(f"--device {name}: this machine has {gpus} GPUs that torch can use, counted from 0")
    return torch.device("cuda", place)


def computes_in_bf16(precision: Precision, device: torch.device) -> bool:
    """Returns whether matrix products are in bfloat16. `auto`: if the device is faster in it than in float32.

    GPUs are from compute capability 8.0 on, and CPUs with AVX512-BF16, such as Xeon Scalable from the fourth
    generation on, and Zen 4. Older GPUs train in float32, not in float16: activations of models that were
    trained in bfloat16 can exceed float16's 65,504, and a step that loss scaling skips would settle groups
    without training on them.
    """
    if precision != "auto":
        return precision == "bf16"
    if device.type == "cpu":
        # Not a public function: a torch without it computes in float32.
        return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)())
    return bool(device.type == "cuda" and torch.cuda.get_device_capability(device) >= BF16_CAPABILITY)


def place_model(model: Any, device: torch.device, *, sharding: Sharding) -> Any:
    """Moves the model, or this process's shards of it, to `device` and returns it.

    It is sharded layer by layer, so that the whole model does not have to fit. Raises `SetupError` if
    sharding is requested for a single process, or the decoder layers were not found.
    """
    if sharding == "none":
        return model.to(device)
    if not dist.is_initialized():
        raise SetupError("--sharding fsdp2 needs several processes: see `accelerate launch`")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    if device.type == "cuda":
        torch.cuda.set_device(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    adapted = hasattr(model, "get_base_model")
    body = model.get_base_model().base_model if adapted else model
    learned = {p for p in model.parameters() if p.requires_grad} if adapted else set()
    layers = _decoder_layers(body)
    for layer in layers:
        fully_shard(layer, mesh=mesh, ignored_params=learned)
    in_layers = {p for layer in layers for p in layer.parameters()}
    unsharded = {p for p in body.parameters() if p not in in_layers} if adapted else set()
    fully_shard(body, mesh=mesh, ignored_params=learned | unsharded)
    if not adapted:
        register_fsdp_forward_method(body, "hidden")
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # The loss is already divided by the whole batch's normaliser, so gradients are summed, not
            # averaged. gloo supports sums too.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return model.to(device)


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the full tensor. If it is sharded, all processes must call this together."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def shard_like(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Returns this process's shard of `value` if `parameter` is sharded, else `value`. Every process must
    have the whole `value`."""
    if not hasattr(parameter, "placements") or value.shape != parameter.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(
        value.to(parameter.device).contiguous(),
        parameter.device_mesh,
        parameter.placements,
        src_data_rank=None,  # every process has the value, so nothing is sent
    )


def _decoder_layers(body: Any) -> list[Any]:
    number = int(body.config.num_hidden_layers)
    for module in body.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == number:
            return list(module)
    raise SetupError(f"sharding=fsdp2: no list of {number} layers in a {type(body).__name__}")


def own_device(settings: S) -> S:
    """Returns `settings` with this process's device from the list in `--device`. Raises `SetupError` if this
    machine has more processes than devices, or a single process got several devices."""
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    has_others = int(os.environ.get("WORLD_SIZE", "1")) > 1
    names = settings.device.split(",")
    if len(names) > 1 and not has_others:
        raise SetupError(
            f"--device {settings.device} is for {len(names)} processes, and this is the only one"
        )
    if names == ["auto"] and has_others:
        names = [str(index) for index in range(torch.cuda.device_count())] or ["cpu"]
    if names in (["cpu"], ["auto"]):
        device = names[0]
    elif rank < len(names):
        device = names[rank]
    else:
        raise SetupError(
            f"process {rank} of this machine finds no GPU: --device {settings.device} "
            f"has {len(names)}; lower --num_processes"
        )
    return cast(S, settings.model_copy(update={"device": device}))
