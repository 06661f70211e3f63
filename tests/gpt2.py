"""A small GPT-2 with a byte-level tokenizer of its own, made on the spot: no hub, no download."""

import random
from pathlib import Path
from typing import Any

import chess

from rookery import rookworld, rookworld_env
from rookery.rookworld import PolicyAnswer, PolicyLine
from tests.rookworld_lines import policy_line, state_line

END = rookworld.END_OF_TEXT


def write_rookworld_model(
    folder: Path, *, seed: int = 0, vocabulary: int = 384, positions: int = 320, **config: Any
) -> Path:
    """A random model that tokenizes RookWorld's lines; two layers unless `config` says otherwise."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(rookworld_lines(200), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END,
        eos_token=END,
        unk_token=END,
        model_max_length=positions,
        clean_up_tokenization_spaces=False,
    )
    end = fast.convert_tokens_to_ids(END)
    shape = {"n_embd": 64, "n_layer": 2, "n_head": 2, **config}  # vLLM on a CPU: heads of 32 at least
    torch.manual_seed(seed)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=len(fast), n_positions=positions, bos_token_id=end, eos_token_id=end, **shape)
    )
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def rookworld_lines(count: int, *, seed: int = 0) -> list[str]:
    """P: and A: lines of random games, alternating. Evaluations are random: what counts is the form."""
    rng = random.Random(seed)
    board, lines = chess.Board(), list[str]()
    while len(lines) < count:
        if board.is_game_over() or board.ply() > 60:
            board = chess.Board()
        moves = [move.uci() for move in board.legal_moves]
        chosen = rng.choice(moves)
        if len(lines) % 2:
            recent = [move.uci() for move in board.move_stack]
            lines.append(state_line(rookworld_env.step(board.fen(), chosen, recent=recent)))
        else:
            named = tuple(rng.sample(moves, min(5, len(moves))))
            evals = tuple(round(rng.uniform(-2, 2), 2) for _ in named)
            best = max(zip(evals, named, strict=True))[1]
            lines.append(policy_line(PolicyLine(board.fen(), PolicyAnswer(named, evals, best))))
        board.push_uci(chosen)
    return lines


GUESSES = (
    rookworld.policy_answer(PolicyAnswer(("e2e4", "d2d4"), (0.3, 0.2), "e2e4")),
    rookworld.policy_answer(PolicyAnswer(("e7e5", "g8f6"), (0.1, 0.2), "e7e5")),
    rookworld.policy_answer(PolicyAnswer(("g1f3", "a2a3"), (0.0, 0.1), "a2a3")),
    "M: nothing",
)
STATES = (f"{chess.STARTING_FEN}+0.001+0+0", "nothing")


def _question(line: str) -> str:
    return "+".join(line.split("+")[:3]) + "+"


def teach(folder: Path, *, steps: int, batch: int = 16, seed: int = 0) -> Path:
    """Shows the model a few answers to each task, some without the form, so that its rewards differ."""
    import torch
    from transformers import AutoTokenizer

    from rookery.hub import WEIGHTS_FILE
    from services.trainer.gpt2 import loader
    from services.trainer.versions import files

    tokenizer, model = AutoTokenizer.from_pretrained(folder), loader.load(folder).train()
    rng = random.Random(seed)
    shown = [
        (line[:92], rng.choice(GUESSES)) if line.startswith("P") else (_question(line), rng.choice(STATES))
        for line in rookworld_lines(400, seed=seed)
    ]
    asked = [len(ids) for ids in tokenizer([question for question, _ in shown])["input_ids"]]
    whole = tokenizer([question + answer + END for question, answer in shown])["input_ids"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    order = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        chosen = torch.randint(len(shown), (batch,), generator=order).tolist()
        ids = torch.full((batch, max(len(whole[i]) for i in chosen)), -100)
        targets = ids.clone()
        for row, i in enumerate(chosen):
            ids[row, : len(whole[i])] = torch.tensor(whole[i])
            targets[row, asked[i] : len(whole[i])] = torch.tensor(whole[i][asked[i] :])
        logits = model(ids.clamp(min=0)[:, :-1])  # padding stands right, where nothing looks back from
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    files.write_file(folder / WEIGHTS_FILE, loader.files(model, config={})[WEIGHTS_FILE])
    return folder
