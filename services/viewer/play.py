"""Asks the policy and the engine about a position, by the run's inference server and reward service."""

import asyncio
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

import chess
import httpx
from pydantic import Field

from rookery.access import OPEN, Access
from rookery.clients import InferenceClient
from rookery.errors import InvalidInput, PeerFault, RookeryError, Unavailable, cause_message
from rookery.fen import read_fen
from rookery.games import GameState, Rules, position_of
from rookery.middleware import StrictBody
from rookery.notation import read_move
from rookery.pgn.reader import read_game
from rookery.pgn.splitter import split
from rookery.prompt import STYLES, mirrored_move, render, task_of
from rookery.trace import Completion, Sampling
from services.viewer.group import legal_candidates, sentences_of

TIMEOUT_S = 120.0
ENGINE = "engine"
"""The player that is not a version of the policy."""
MAX_MOVES = 600


class PlayedLine(StrictBody):
    """A position: a FEN or the last one of a PGN, and the moves (UCI or SAN) played after it."""

    fen: str = Field(default="", max_length=200)
    pgn: str = Field(default="", max_length=100_000)
    moves: list[Annotated[str, Field(max_length=20)]] = Field(default=[], max_length=MAX_MOVES)

    def board(self) -> chess.Board:
        """The board with its moves. Raises `InvalidInput` if the FEN, the PGN or a move is not valid; the
        message quotes it."""
        if self.pgn.strip():
            board = self._end_of_pgn()
        else:
            board = read_fen(self.fen) if self.fen.strip() else chess.Board()
        for text in self.moves:
            if (move := read_move(text, board).move) is None:
                raise InvalidInput(f"{text!r} is not a legal move in {board.fen()!r}")
            board.push(move)
        return board

    def _end_of_pgn(self) -> chess.Board:
        games = list(islice(split(self.pgn.encode(errors="replace")), 2))
        if len(games) != 1:
            raise InvalidInput(f"a PGN of one game is needed: {self.pgn[:80]!r}")
        game = read_game(games[0].text, max_plies=MAX_MOVES)
        if game.faults:
            raise InvalidInput(f"not a PGN: {game.faults[0]}")
        if not game.moves and "FEN" not in game.tags:
            raise InvalidInput(f"no move and no FEN in the PGN: {self.pgn[:80]!r}")
        return game.board


class MoveQuestion(PlayedLine):
    """A position, and who is to answer with a move."""

    player: str = Field(max_length=200)
    """A model that the server serves, such as `policy`, or `engine`."""
    style: str = Field(default="mover-squares", max_length=40)
    """The style of the prompt: that of the run."""
    temperature: float = Field(default=0.0, ge=0, le=5)
    max_tokens: int = Field(default=64, ge=1, le=8192)


def position_json(line: PlayedLine) -> dict[str, Any]:
    """What a board needs to show a position and to let moves be made."""
    board = line.board()
    dests: dict[str, list[str]] = {}
    for move in board.legal_moves:
        dests.setdefault(chess.square_name(move.from_square), []).append(move.uci())
    root = board.root()
    return {
        "fen": board.fen(),
        "moves": [move.uci() for move in board.move_stack],
        "sans": [root.san_and_push(move) for move in board.move_stack],
        "start": board.root().fen(),
        "dests": dests,
        "turn": "white" if board.turn else "black",
        "check": board.is_check(),
        "over": _over(board),
    }


class Version(StrictBody):
    """A version of a run that is to be served."""

    version: int = Field(ge=0, le=10**9)


def _over(board: chess.Board) -> str | None:
    """How the game has ended, by the rules of matches; None if it goes on."""
    end = GameState(board, Rules(max_plies=MAX_MOVES)).end
    return end and f"{end[0]} by {end[1].replace('_', ' ')}"


@dataclass(frozen=True, slots=True)
class RunServices:
    """The addresses of the two services; empty if there is none."""

    inference_url: str
    reward_url: str
    access: Access = OPEN

    async def state(self) -> dict[str, Any]:
        """The models that can be asked, and why a service cannot."""
        state: dict[str, Any] = {"models": [], "styles": sorted(STYLES), "inference": "", "reward": ""}
        try:
            url = _required_url(self.inference_url, "inference")
            async with InferenceClient(url, access=self.access, timeout_s=5.0) as client:
                served = await client.served()
                state["models"] = [
                    {"name": name, "path": str(served[name])} for name in sorted(served, reverse=True)
                ]
        except RookeryError as error:
            state["inference"] = str(error)
        try:
            await self._reward("GET", "/readyz", timeout_s=5.0)
        except RookeryError as error:
            state["reward"] = str(error)
        return state

    async def answer(self, question: MoveQuestion, board: chess.Board) -> dict[str, Any]:
        """The player's answer on the question's board, with its verdict; of the engine, its move alone.
        Raises `InvalidInput` if the game is over; `Unavailable` if a service that is needed has no address,
        or does not answer."""
        if over := _over(board):
            raise InvalidInput(f"the game is over, {over}: {board.fen()!r}")
        if question.player == ENGINE:
            verdict = await self._verdict(board.fen(), f"\\boxed{{{next(iter(board.legal_moves)).uci()}}}")
            return {
                "move": verdict["best"],
                "win": verdict["win_before"],
                "evaluation": verdict["eval_before"],
            }
        position = position_of(board)
        prompt, task = render(position, style=question.style), task_of(position, style=question.style)
        completion = await self._complete(prompt, question)
        seen = chess.Board(prompt.fen)
        mirrored = seen.turn != board.turn
        reply: dict[str, Any] = {
            "text": completion.text,
            "prompt": prompt.messages[-1].content,
            "candidates": [
                _unmirrored(move, board, mirrored=mirrored)
                for move in await asyncio.to_thread(legal_candidates, completion.text, seen)
            ],
            "sentences": [],
        }
        try:
            verdict = await self._verdict(
                prompt.fen, completion.text, truncated=completion.truncated, task=task
            )
        except Unavailable as error:
            return {**reply, "move": None, "best": None, "verdict": None, "problem": str(error)}
        reply["sentences"] = await asyncio.to_thread(
            sentences_of, prompt.fen, completion.text, (verdict["move"] or {}).get("uci", "")
        )
        verdict_moves = {
            name: _unmirrored(verdict[name], board, mirrored=mirrored) for name in ("move", "best")
        }
        return {**reply, **verdict_moves, "verdict": verdict}

    async def _complete(self, prompt: Any, question: MoveQuestion) -> Completion:
        sampling = Sampling(temperature=question.temperature, max_tokens=question.max_tokens)
        url = _required_url(self.inference_url, "inference")
        async with InferenceClient(url, access=self.access, timeout_s=TIMEOUT_S) as client:
            generation = await client.complete(
                prompt,
                model=question.player,
                count=1,
                sampling=sampling,
                seed=0,
                tokens=await client.tells_tokens(),
            )
        return generation.completions[0]

    async def _verdict(
        self, fen: str, response: str, *, truncated: bool = False, task: str = ""
    ) -> dict[str, Any]:
        body = {"fen": fen, "response": response, "truncated": truncated}
        return await self._reward("POST", "/v1/score", body | ({"task": task} if task else {}))

    async def _reward(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> dict[str, Any]:
        url = _required_url(self.reward_url, "reward") + path
        try:
            access = self.access
            async with httpx.AsyncClient(
                headers=access.headers, verify=access.client_tls(), timeout=timeout_s
            ) as client:
                response = await client.request(method, url, json=body)
                response.raise_for_status()
                return dict(response.json())
        except (httpx.HTTPError, ValueError) as error:
            raise PeerFault(f"{method} {url}: {cause_message(error)}") from error


def _unmirrored(move: dict[str, str] | None, board: chess.Board, *, mirrored: bool) -> dict[str, str] | None:
    """A move of the verdict on the board of the question: mirrored back if the prompt mirrored the board."""
    if move is None or not mirrored:
        return move
    uci = mirrored_move(move["uci"])
    return {"uci": uci, "san": board.san(chess.Move.from_uci(uci))}


def _required_url(url: str, name: str) -> str:
    if not url:
        raise Unavailable(f"no {name} service: start the viewer with --{name}-url, or while the run is up")
    return url.rstrip("/")
