"""A small GPT-2 with a byte-level tokenizer of its own, made on the spot: no hub, no download."""

import random
from pathlib import Path
from typing import Any

import chess

from rookery import arbiter, rookworld
from rookery.rookworld import PolicyLine

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
            lines.append(rookworld.state_line(arbiter.step(board.fen(), chosen, recent=recent)))
        else:
            named = tuple(rng.sample(moves, min(5, len(moves))))
            evals = tuple(round(rng.uniform(-2, 2), 2) for _ in named)
            best = max(zip(evals, named, strict=True))[1]
            lines.append(rookworld.policy_line(PolicyLine(board.fen(), named, evals, best)))
        board.push_uci(chosen)
    return lines
