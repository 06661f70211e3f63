"""`python -m bench.moves MODEL --positions FILE`: how well a model directory plays, without a server.

Each position of FILE, JSON lines as `rookery data sample` prints them, is answered greedily and by samples at
temperature 1, in transformers, and judged by Stockfish as the reward service does it. One line each for the
greedy move, the sampled ones, the first candidate of the greedy `<think>`, and a random legal move. Intervals
are 1.96 standard errors of independent answers: with --samples above 1 they are too narrow, because answers
to one position resemble each other. `mates` is over positions with a mate in one.
"""

import argparse
import json
import math
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import chess
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from rookery.prompt import STYLES, render
from rookery.trace import Outcome, Phase, Position, Prompt, Verdict
from services.reward.local import LocalScorer
from services.reward.scorer import Item
from services.reward.settings import RewardSettings

_CANDIDATE = re.compile(r"<think>\s*(\S+?)(?:\s|</think>)")


def main(argv: list[str]) -> int:
    """Prints the measures; the exit status."""
    options = _parser().parse_args(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    disable_progress_bar()
    positions = [_position(json.loads(line)) for line in options.positions.read_text().splitlines()]
    prompts = [render(position, style=options.style) for position in positions[: options.count]]
    answer = _policy(options, prompts)
    rng = random.Random(0)
    greedy = answer(1, sampled=False)
    sides = {
        "greedy": greedy,
        "sampled": answer(options.samples, sampled=True),
        "first candidate": [[_first_candidate(texts[0])] for texts in greedy],
        "random legal": [[_boxed(rng.choice(_legal(prompt)))] for prompt in prompts],
    }
    settings = RewardSettings.parse(["--engines", str(options.engines)], prog="bench.moves")
    scorer = LocalScorer(settings)
    try:
        for name, texts in sides.items():
            print(f"{name:16}", _measured(prompts, texts, scorer), flush=True)
    finally:
        scorer.close()
    return 0


def _policy(options: argparse.Namespace, prompts: Sequence[Prompt]) -> Callable[..., list[list[str]]]:
    tokenizer: Any = AutoTokenizer.from_pretrained(options.model)
    model: Any = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    said = [[{"role": m.role, "content": m.content} for m in prompt.messages] for prompt in prompts]
    texts = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)

    def answer(count: int, *, sampled: bool) -> list[list[str]]:
        torch.manual_seed(0)
        answers: list[list[str]] = []
        draw: dict[str, Any] = {"do_sample": False}
        if sampled:
            draw = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        for start in range(0, len(texts), options.batch):
            batch = texts[start : start + options.batch]
            asked = tokenizer(batch, return_tensors="pt", padding=True, add_special_tokens=False)
            asked.pop("token_type_ids", None)
            out = model.generate(
                **asked, max_new_tokens=options.max_tokens, num_return_sequences=count, **draw
            )
            # Special tokens stay, since tags may be such; the end of the answer does not.
            new = tokenizer.batch_decode(out[:, asked["input_ids"].shape[1] :])
            ended = [text.partition(tokenizer.eos_token)[0] for text in new]
            answers += [ended[i : i + count] for i in range(0, len(ended), count)]
        return answers

    return answer


def _measured(prompts: Sequence[Prompt], texts: Sequence[Sequence[str]], scorer: LocalScorer) -> str:
    items = [Item(p.fen, text) for p, answers in zip(prompts, texts, strict=True) for text in answers]
    verdicts = [_sound(verdict) for verdict in _judged(items, scorer)]
    legal = [float(verdict.outcome is Outcome.LEGAL) for verdict in verdicts]
    regret = [verdict.regret for verdict in verdicts if verdict.regret is not None]
    best = [float(verdict.outcome is Outcome.LEGAL and verdict.move == verdict.best) for verdict in verdicts]
    mates = [
        float(v.move is not None and v.move.uci in mating)
        for item, v in zip(items, verdicts, strict=True)
        if (mating := _mates(item.fen))
    ]
    columns = {"legal": legal, "regret of legal": regret, "best": best, "mates": mates}
    return ", ".join(f"{name} {_mean(values)}" for name, values in columns.items() if values)


def _judged(items: Sequence[Item], scorer: LocalScorer) -> Iterator[Any]:
    for start in range(0, len(items), 256):
        yield from scorer.score_batch(items[start : start + 256])


def _sound(verdict: Verdict | Exception) -> Verdict:
    if isinstance(verdict, Exception):
        raise verdict
    return verdict


def _mean(values: Sequence[float]) -> str:
    mean = sum(values) / len(values)
    error = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values) / len(values))
    return f"{mean:.4f} ±{1.96 * error:.4f} (n={len(values)})"


def _first_candidate(text: str) -> str:
    match = _CANDIDATE.search(text)
    return _boxed(match[1]) if match else text


def _boxed(move: str) -> str:
    return f"\\boxed{{{move}}}"


def _legal(prompt: Prompt) -> list[str]:
    return [move.uci() for move in chess.Board(prompt.fen).legal_moves]


def _mates(fen: str) -> set[str]:
    board = chess.Board(fen)
    mates = set()
    for move in list(board.legal_moves):
        board.push(move)
        if board.is_checkmate():
            mates.add(move.uci())
        board.pop()
    return mates


def _position(row: dict[str, Any]) -> Position:
    last = tuple(row.get("last_moves") or ())
    return Position(row["id"], row["fen"], row["ply"], Phase(row["phase"]), row["game_id"], last)


def _parser() -> argparse.ArgumentParser:
    parsed = argparse.ArgumentParser(prog="python -m bench.moves", description=__doc__)
    parsed.add_argument("model", type=Path)
    parsed.add_argument("--positions", type=Path, required=True, help="JSON lines")
    parsed.add_argument("--count", type=int, help="of them; without it all")
    parsed.add_argument("--style", choices=sorted(STYLES), default="mover-squares")
    parsed.add_argument("--samples", type=int, default=1, help="sampled answers a position (1)")
    parsed.add_argument("--max-tokens", type=int, default=32, help="of an answer (32)")
    parsed.add_argument("--batch", type=int, default=128, help="prompts at once (128)")
    parsed.add_argument("--engines", type=int, default=1, help="Stockfish processes (1)")
    parsed.add_argument("--threads", type=int, default=0, help="of torch; 0 leaves its choice")
    return parsed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
