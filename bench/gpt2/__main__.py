"""`python -m bench.gpt2`: one model of random weights, both implementations in turn, in one process.

Prompts are of different lengths and so left-padded, completions are sampled and never stop early, so that
both do the same work. Each is warmed up once and then timed several times; the medians are compared. Then a
whole step of RookWorld's training, on a GPU if there is one, beside what rookworld-rlvr takes for it.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils.logging import disable_progress_bar

from bench.gpt2.step import GROUP, ROOKWORLD, measure_step
from rookery.trace import Sampling
from services.trainer.gpt2 import loader
from services.trainer.gpt2.generate import generate
from services.trainer.gpt2.model import Gpt2, positions


def main(argv: list[str]) -> int:
    parsed = argparse.ArgumentParser(prog="python -m bench.gpt2", description=__doc__)
    parsed.add_argument("--rows", type=int, default=16, help="prompts at once")
    parsed.add_argument("--prompt", type=int, default=90, help="longest prompt, in tokens")
    parsed.add_argument("--tokens", type=int, default=64, help="tokens of a completion")
    parsed.add_argument("--rounds", type=int, default=3, help="measurements of each")
    parsed.add_argument("--layers", type=int, default=12)
    parsed.add_argument("--width", type=int, default=768)
    parsed.add_argument("--threads", type=int, default=0, help="of torch; 0 leaves its choice")
    parsed.add_argument("--samples", type=int, default=0, help="of a step; 0: 64 on a GPU, 8 on a CPU")
    options = parsed.parse_args(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        theirs = _model(options)
        theirs.save_pretrained(folder)
        _beside_transformers(loader.load(Path(folder)), theirs, options)
        _step(Path(folder), options)
    return 0


def _beside_transformers(ours: Gpt2, theirs: GPT2LMHeadModel, options: argparse.Namespace) -> None:
    prompts = _prompts(options)
    millions = sum(weight.numel() for weight in ours.parameters()) / 1e6
    print(
        f"{millions:.1f} M parameters in float32, {torch.get_num_threads()} threads; {options.rows} prompts "
        f"of {len(prompts[-1])} to {len(prompts[0])} tokens, {options.tokens} tokens each"
    )
    print(f"largest difference of logits: {_difference(ours, theirs, prompts):.1e}")
    _compare(
        {
            "ours": lambda: _our_tokens(ours, prompts, options.tokens),
            "transformers": lambda: _their_tokens(theirs, prompts, options.tokens),
        },
        rounds=options.rounds,
        tokens=options.rows * options.tokens,
    )


def _step(folder: Path, options: argparse.Namespace) -> None:
    gpu = torch.cuda.is_available()
    samples = options.samples or (64 if gpu else GROUP)
    step = measure_step(folder, _prompts(options), samples=samples, rounds=options.rounds)
    total_s = step.generate_s + step.train_s
    print(
        f"a step of {samples} samples on {step.device}: {total_s:.1f} s, "
        f"{step.generate_s:.1f} s to write them and {step.train_s:.1f} s to learn\n{ROOKWORLD}"
        + ("" if gpu else "\n(figures of a CPU, which say nothing of a GPU)")
    )


def _model(options: argparse.Namespace) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    shape = {"n_layer": options.layers, "n_embd": options.width, "n_head": max(1, options.width // 64)}
    return GPT2LMHeadModel(GPT2Config(**shape)).eval()


def _prompts(options: argparse.Namespace) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    shortest = max(1, options.prompt * 2 // 3)
    lengths = [options.prompt - i * (options.prompt - shortest) // options.rows for i in range(options.rows)]
    return [torch.randint(50_000, (length,), generator=generator).tolist() for length in lengths]


def _padded(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    present = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return ids, present


def _difference(ours: Gpt2, theirs: GPT2LMHeadModel, prompts: list[list[int]]) -> float:
    ids, present = _padded(prompts)
    with torch.inference_mode():
        mine = ours(ids, attention_mask_BT=present)
        other = theirs(ids, attention_mask=present, position_ids=positions(present)).logits
    return float((mine - other)[present.bool()].abs().max())


def _our_tokens(model: Gpt2, prompts: list[list[int]], tokens: int) -> None:
    generate(model, prompts, sampling=Sampling(max_tokens=tokens))


def _their_tokens(model: GPT2LMHeadModel, prompts: list[list[int]], tokens: int) -> None:
    ids, present = _padded(prompts)
    with torch.inference_mode():
        done = model.generate(
            ids,
            attention_mask=present,
            do_sample=True,
            top_k=0,
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            pad_token_id=0,
        )
    if done.shape[1] != ids.shape[1] + tokens:
        raise RuntimeError(f"transformers wrote {done.shape[1] - ids.shape[1]} tokens, not {tokens}")


def _compare(kinds: dict[str, Callable[[], None]], *, rounds: int, tokens: int) -> None:
    """Rounds alternate, so that both see the same neighbours on the machine."""
    for work in kinds.values():
        work()
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, work in kinds.items():
            began = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - began)
    speeds = {name: tokens / statistics.median(taken) for name, taken in seconds.items()}
    for name, speed in speeds.items():
        print(f"{name:>13} {speed:8.0f} tokens/s")
    print(f"ours / transformers: {speeds['ours'] / speeds['transformers']:.2f}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
