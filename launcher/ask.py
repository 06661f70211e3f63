"""`rookery ask`: asks a model for a move in a position, and judges its answer."""

import asyncio
import subprocess
import sys

from pydantic import Field, PositiveInt
from pydantic_settings import CliPositionalArg
from rich.text import Text

from launcher.serve_players import read_endpoint, serve
from rookery.access import AccessSettings
from rookery.chosen_move import chosen_move
from rookery.clients import InferenceClient
from rookery.devices import Device
from rookery.errors import SetupError
from rookery.fen import read_fen
from rookery.games import position_of
from rookery.prompt import render, task_of
from rookery.remote import PathOrUrl
from rookery.terminal import SafeConsole
from rookery.trace import Sampling

DEFAULT_MODEL = "models/rook-small-rl"


class AskSettings(AccessSettings, env_prefix="ASK_"):
    """Ask a model for its move in a position, in the style that it was trained on, and judge the answer.

    The model is served for the question, which takes a minute or two on a CPU.
    """

    fen: CliPositionalArg[str] = Field(max_length=200)
    """The position."""
    model: PathOrUrl = ""
    """Model to ask: a directory, a Hugging Face id or the URL of a folder. Default: models/rook-small-rl."""
    run: PathOrUrl = ""
    """Run to ask, instead of a model: runs/NAME[@VERSION]."""
    temperature: float = Field(default=0.0, ge=0, le=2)
    """Sampling temperature; 0 is greedy."""
    seed: int = Field(default=0, ge=0)
    """Seed of the sampled answer."""
    nodes: PositiveInt = 10_000
    """Stockfish nodes per search of the verdict."""
    device: Device = "auto"
    """cpu, the index of a GPU or its id (GPU-..., MIG-...), or auto."""


def ask(settings: AskSettings) -> int:
    """Asks, and prints the board, the question, the answer and its verdict. Returns the exit status. Raises
    `InvalidInput` if the FEN is not possible, or the game is over; `SetupError` if there is no such model or
    run, or it cannot be served."""
    console = SafeConsole(highlight=False, soft_wrap=True)
    board = read_fen(settings.fen)
    if board.is_game_over():
        raise SetupError(f"the game is over: {board.fen()!r}")
    if settings.model and settings.run:
        raise SetupError(f"--model {settings.model} and --run {settings.run}: choose one")
    spec = f"run:{settings.run}" if settings.run else f"model:{settings.model or DEFAULT_MODEL}"
    position = position_of(board)
    with serve([spec], device=settings.device) as (served,):
        url, model, options = read_endpoint(served)
        style = options.get("style", "")
        prompt = render(position, style=style)
        sampling = Sampling(settings.temperature, max_tokens=int(options["max-tokens"]))

        async def complete() -> str:
            async with InferenceClient(url, access=settings.access) as client:
                thinking = {"on": True, "off": False}.get(options.get("thinking", ""))
                generation = await client.complete(
                    prompt, model=model, count=1, sampling=sampling, seed=settings.seed, thinking=thinking
                )
            return generation.completions[0].text

        answer = asyncio.run(complete())
    console.print(board.unicode(empty_square="."), highlight=False)
    for message in prompt.messages:
        console.print(Text(f"\n{message.role}", style="bold"))
        console.print(Text(message.content))
    console.print(Text(f"\n{options['name']}", style="bold"))
    console.print(Text(answer))
    move = chosen_move(answer, prompt, board).move
    console.print(Text(f"\n{board.san(move)} ({move.uci()})" if move else "\nno legal move", style="bold"))
    if prompt.fen != board.fen():
        console.print("The model sees the board mirrored, with White to move, and so does the verdict.")
    task = task_of(position, style=style)
    flags = [f"--nodes={settings.nodes}", *([f"--task={task}"] if task else [])]
    command = [sys.executable, "-m", "launcher", "score", prompt.fen, "-", *flags]
    return subprocess.run(command, input=answer, text=True, check=False).returncode
