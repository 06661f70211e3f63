"""The work that both sides do, down to the bytes of the model and the order of the positions."""

import json
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from chess_datasets.pgn.collection import GameCollection
from chess_datasets.positions.numbered import PositionOrder
from chess_datasets.positions.recipe import Shares
from rookery.prompt import render


@dataclass(frozen=True)
class Workload:
    """One optimizer step trains on `batch_groups * group_size` completions of `tokens` tokens each."""

    model: Path
    source: Path
    steps: int
    warmup_steps: int
    batch_groups: int = 8
    group_size: int = 8
    staleness: int = 2
    tokens: int = 32
    style: str = "mover-squares"
    precision: str = "fp32"
    trl_precision: str = "fp32"
    lr: float = 1e-4
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_targets: tuple[str, ...] = (
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    )  # fmt: skip
    seed: int = 0
    nodes: int = 0
    """Stockfish nodes of a search. 0: a reward that costs nothing."""

    @property
    def samples(self) -> int:
        return self.batch_groups * self.group_size


def endless_model(model: Path, out: Path) -> Path:
    """A copy of `model` that never ends a completion by itself, so that all have the same length: it ends in
    the last of its special tokens, which no text has, or in an unknown one."""
    shutil.copytree(model, out, dirs_exist_ok=True)
    tokens = json.loads((out / "tokenizer.json").read_text())["added_tokens"]
    special = {token["content"]: token["id"] for token in tokens if token["special"]}
    end = "<|unk|>" if "<|unk|>" in special else max(special, key=special.__getitem__)
    for name in ("config.json", "generation_config.json"):
        if (out / name).exists():
            _edit(out / name, eos_token_id=special[end])
    _edit(out / "tokenizer_config.json", eos_token=end)
    return out.resolve()


def write_prompts(work: Workload, path: Path) -> None:
    """The chat prompts of the positions that our feed would send, in its order, as JSONL."""
    with closing(GameCollection([work.source])) as games, path.open("w") as file:
        order = PositionOrder(games, shares=Shares(), split="train")
        for number in range(work.batch_groups * work.steps):
            prompt = render(order.position(number, seed=work.seed), style=work.style)
            messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
            file.write(json.dumps({"prompt": messages}) + "\n")


def _edit(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}, indent=2) + "\n")
