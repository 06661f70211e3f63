"""The work that both sides do, on the same tokens, log-probabilities and advantages; what each says of it.

The peer imports it too, so it imports little at first.
"""

import json
import random
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Measured:
    """Of each measured step its seconds, by the clock and of the process's own; memory in MiB: before the
    first step, and the peak (`used_mib`).
    """

    samples: int
    step_s: list[float]
    cpu_s: list[float]
    resident_mib: float
    peak_mib: float

    @property
    def samples_per_s(self) -> float:
        """Over all measured steps."""
        return self.samples * len(self.step_s) / sum(self.step_s)

    @property
    def samples_per_cpu_s(self) -> float:
        """What others on the machine hardly touch."""
        return self.samples * len(self.cpu_s) / sum(self.cpu_s)


def used_mib(work: "Work", *, peak: bool) -> float:
    """Of the device of the work: torch's on a GPU, else the resident set of this process."""
    if not work.gpu:
        return resident_mib("VmHWM" if peak else "VmRSS")
    import torch

    used = torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()
    return float(used) / (1 << 20)


def clock(work: "Work") -> tuple[float, float]:
    """The time by the clock and of this process's own, once the GPU has done what it was told."""
    if work.gpu:
        import torch

        torch.cuda.synchronize()
    return time.perf_counter(), time.process_time()


def resident_mib(key: str = "VmRSS") -> float:
    """Of this process; `VmHWM` is its highest ever."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"no {key} in /proc/self/status")


def say(result: Measured) -> None:
    """As the last line of stdout."""
    sys.stdout.write(f"\n{json.dumps(asdict(result))}\n")


TARGETS = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"


@dataclass(frozen=True, slots=True)
class Work:
    """Training on `groups` groups of `group` completions a step, `group` sequences a forward pass. The model
    is a Qwen3 with random weights."""

    name: str
    model: str
    prompt: int
    completion: int
    group: int = 8
    groups: int = 4
    warmup_steps: int = 1
    steps: int = 3
    lr: float = 1e-4
    lora_rank: int = 16
    lora_alpha: int = 32
    threads: int = 1
    seed: int = 0
    gpu: bool = False
    """Both sides compute on the first GPU, in bfloat16, instead of on the CPU in float32."""

    @property
    def samples(self) -> int:
        return self.group * self.groups

    def save(self, folder: Path) -> Path:
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def load(cls, path: str) -> Self:
        return cls(**json.loads(Path(path).read_text()))

    def step_groups(self, step: int, *, vocabulary: int) -> list[dict[str, Any]]:
        """A step's groups: `prompt` ids, and for each completion ids, log-probabilities and a reward."""
        rng = random.Random(f"{self.seed}:{step}")

        def completion() -> dict[str, Any]:
            return {
                "ids": [rng.randrange(5, vocabulary) for _ in range(self.completion)],
                "logprobs": [-10.0 - rng.random() for _ in range(self.completion)],
                "reward": rng.random(),
            }

        return [
            {
                "prompt": [rng.randrange(5, vocabulary) for _ in range(self.prompt)],
                "completions": [completion() for _ in range(self.group)],
            }
            for _ in range(self.groups)
        ]


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a Qwen3. The default has Qwen3-0.6B's ratio of vocabulary to width, and runs on a CPU."""

    width: int = 256
    inner: int = 768
    layers: int = 6
    heads: int = 4
    key_heads: int = 2
    head: int = 64
    vocabulary: int = 32_768
    positions: int = 4096


def build_model(out: Path, shape: Shape = Shape(), *, dtype: str = "float32") -> Path:
    """A random model directory with rook-tiny's tokenizer."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.utils.logging import disable_progress_bar

    from services.trainer.tiny import build_tiny

    disable_progress_bar()
    build_tiny(out)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        head_dim=shape.head,
        max_position_embeddings=shape.positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(out)
    return out.resolve()


def examples(work: Work, count: int) -> list[dict[str, Any]]:
    """Chats for supervised fine-tuning, in rook-tiny's words: squares, a token each."""
    rng = random.Random(work.seed)
    squares = [file + rank for file in "abcdefgh" for rank in "12345678"]

    def text(tokens: int) -> str:
        return "".join(rng.choice(squares) for _ in range(tokens))

    def length(most: int) -> int:
        return rng.randint(most // 2, most)

    return [
        {
            "messages": [
                {"role": "user", "content": text(length(work.prompt))},
                {"role": "assistant", "content": text(length(work.completion))},
            ]
        }
        for _ in range(count)
    ]
