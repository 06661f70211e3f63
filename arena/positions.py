"""Reads the positions of an evaluation, removes duplicates and excluded ones, and draws some by seed.

Two positions are the same if their first four FEN fields agree after the board is mirrored so that White is
to move.
"""

import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chess
import httpx

from rookery.access import OPEN, REMEDY, Access
from rookery.encoding import encoding_of
from rookery.errors import InvalidInput, PeerFault, SetupError, cause_message
from rookery.fen import FenReport, read_fen
from rookery.prompt import mover_board
from rookery.trace import Phase, Position

_TIMEOUT_S = 60.0
_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Chosen:
    """The positions of an evaluation and their source. `file_sha256` is None if they come from a service.
    `excluded` is how many others were left out because `--exclude` has them."""

    positions: tuple[Position, ...]
    source: str
    file_sha256: str | None
    excluded: int = 0
    report: FenReport = field(default_factory=FenReport)


def same_question(fen: str) -> str:
    """A text that is equal for two positions that ask the same question.

    >>> same_question("4k3/4p3/8/8/8/8/8/4K3 b - - 0 1") == same_question("4k3/8/8/8/8/8/4P3/4K3 w - - 9 40")
    True
    """
    return " ".join(mover_board(fen).fen().split()[:4])


def read_jsonl(path: Path, *, report: FenReport | None = None) -> list[Position]:
    """The positions of a file with one per line, as `rookery data sample` writes them.

    With a `report`, lines that are no possible position are left out and listed in it. Raises `InvalidInput`
    if the file cannot be read, or without a `report`, a line is no possible position. The message names the
    line.
    """
    try:
        lines = path.read_text(encoding=encoding_of(path)).split("\n")
    except UnicodeDecodeError as error:
        form = "not JSON lines, as `rookery data sample --form jsonl` writes"
        raise InvalidInput(f"positions {str(path)!r}: {form}: {error}") from error
    except OSError as error:
        raise InvalidInput(f"positions {str(path)!r}: {error}") from error
    positions = []
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                positions.append(_position(line, report))
        except InvalidInput as error:
            if report is None:
                raise InvalidInput(f"{path}:{number}: {error}") from error
            report.skip(f"{path.name}:{number}", error)
    return positions


async def fetch(url: str, *, count: int, seed: int, access: Access = OPEN) -> list[Position]:
    """The first `count` held-out positions in a data service's order for `seed`. They may have duplicates.

    Raises:
        PeerFault: the service does not answer, with a status of 500 or more, or without positions.
        SetupError: the service demands another token.
        InvalidInput: the service refuses the request, or one of its positions is not valid.
    """
    async with httpx.AsyncClient(
        base_url=url, headers=access.headers, verify=access.client_tls(), timeout=_TIMEOUT_S
    ) as http:
        pages = [
            await _page(http, count=min(_PAGE, count - offset), offset=offset, seed=seed)
            for offset in range(0, count, _PAGE)
        ]
    return [position for page in pages for position in page]


async def _page(http: httpx.AsyncClient, *, count: int, offset: int, seed: int) -> list[Position]:
    query: dict[str, str | int] = {"count": count, "offset": offset, "seed": seed, "split": "heldout"}
    try:
        response = await http.get("/v1/positions", params=query)
    except httpx.HTTPError as error:
        raise PeerFault(f"GET {http.base_url}: {cause_message(error)}") from error
    if response.status_code == 401:
        raise SetupError(f"{response.url} refuses the token: {REMEDY}")
    if response.status_code >= 500:
        raise PeerFault(f"GET {response.url}: {response.status_code} {response.text[:300]}")
    if not response.is_success:
        raise InvalidInput(f"GET {response.url}: {response.status_code} {response.text[:300]}")
    try:
        return [_parse(item) for item in response.json()["positions"]]
    except InvalidInput as error:
        raise InvalidInput(f"{response.url}: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PeerFault(f"GET {response.url}: {error!r} in {response.text[:300]!r}") from error


def choose(
    pool: Sequence[Position], *, count: int, seed: int, seen: Iterable[Position] = ()
) -> list[Position]:
    """`count` different positions of `pool`, none of them in `seen`. The same seed draws the same ones.
    Raises `InvalidInput` if there are fewer."""
    taken = {same_question(position.fen) for position in seen}
    fresh = []
    for position in pool:
        question = same_question(position.fen)
        if question not in taken:
            taken.add(question)
            fresh.append(position)
    if len(fresh) < count:
        raise InvalidInput(
            f"{count} positions were asked for, but there are only {len(fresh)}: "
            f"{len(pool) - len(fresh)} of {len(pool)} are duplicates or excluded"
        )
    order = sorted(random.Random(seed).sample(range(len(fresh)), count))
    return [fresh[i] for i in order]


def fens_sha256(positions: Iterable[Position]) -> str:
    """SHA-256 of the FENs in order, one per line. It is equal for two evaluations of the same positions."""
    return hashlib.sha256("".join(f"{p.fen}\n" for p in positions).encode()).hexdigest()


def _position(line: str, report: FenReport | None) -> Position:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"not JSON: {line[:120]!r}") from error
    return _parse(item, report)


def _parse(item: Any, report: FenReport | None = None) -> Position:
    try:
        board = read_fen(item["fen"], dropped=report.dropped if report else None)
        position = Position(
            id=str(item["id"]),
            fen=board.fen(),
            ply=int(item["ply"]),
            phase=Phase(item["phase"]),
            game_id=str(item["game_id"]),
            last_moves=tuple(chess.Move.from_uci(move).uci() for move in item.get("last_moves") or ()),
            white_elo=item.get("white_elo"),
            black_elo=item.get("black_elo"),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidInput(f"not a position: {error!r} in {json.dumps(item)[:200]}") from error
    if not any(board.legal_moves):
        raise InvalidInput(f"no legal move in {item['fen']!r}")
    return position
