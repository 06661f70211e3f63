"""HTTP client of a reward model's server. Any answer other than rewards is a `PeerFault`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from rookery.access import OPEN, REMEDY, Access
from rookery.errors import PeerFault, cause_message
from rookery.http_pool import HttpPool
from rookery.retries import PAUSES_S, retry
from rookery.trace import Message

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class RewardModelInfo:
    """The SHA-256 of the model, and the prompt style it was trained on."""

    sha256: str
    style: str


@dataclass(frozen=True, slots=True)
class ModelRewards:
    """Rewards in the order of the chats, and the SHA-256 of the model that computed them."""

    sha256: str
    rewards: tuple[float, ...]


class RewardModelClient:
    """HTTP client of `rookery serve reward-model` at `url`."""

    def __init__(self, url: str, *, access: Access = OPEN) -> None:
        self.url = url.rstrip("/")
        self._http = HttpPool(self.url, timeout_s=TIMEOUT_S, access=access)

    async def card(self) -> RewardModelInfo:
        """The model that the server runs. Raises `PeerFault` if the server does not answer. There is no
        retry."""
        body = await self._ask("GET", "/v1/model")
        return RewardModelInfo(_string_field(body, "sha256"), _string_field(body, "style"))

    async def rewards(self, chats: Sequence[Sequence[Message]]) -> ModelRewards:
        """Rewards of chats that end with the answer. Raises `PeerFault` if it does not answer after several
        attempts, or not one finite number for each chat."""
        items = [
            {"messages": [{"role": turn.role, "content": turn.content} for turn in chat]} for chat in chats
        ]
        body = await retry(
            lambda: self._ask("POST", "/v1/rewards", {"items": items}), on=PeerFault, pauses_s=PAUSES_S
        )
        rewards = body.get("rewards")
        if not isinstance(rewards, list) or len(rewards) != len(chats) or not all(map(_is_number, rewards)):
            raise PeerFault(f"{self.url}: not {len(chats)} rewards: {str(rewards)[:200]}")
        return ModelRewards(_string_field(body, "sha256"), tuple(map(float, rewards)))

    async def close(self) -> None:
        await self._http.aclose()

    async def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        try:
            response = await self._http.request(method, path, json=body)
            if response.status_code == 401:
                raise PeerFault(f"the reward model at {self.url} refuses the token: {REMEDY}")
            if not response.is_success:
                raise PeerFault(f"{method} {self.url}{path}: {response.status_code} {response.text[:300]}")
            answer = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise PeerFault(f"{method} {self.url}{path}: {cause_message(error)}") from error
        if not isinstance(answer, dict):
            raise PeerFault(f"{method} {self.url}{path}: cannot read {str(answer)[:200]!r}")
        return answer


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _string_field(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise PeerFault(f"reward model: {name} is {value!r}, not a string")
    return value
