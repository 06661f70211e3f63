"""HTTP client of a reward model's server. Any answer other than rewards is a `PeerFault`."""

from collections.abc import Sequence
from typing import TypeVar

import httpx
from pydantic import BaseModel, FiniteFloat, ValidationError

from rookery.access import OPEN, REMEDY, Access
from rookery.errors import PeerFault, cause_message, validation_message
from rookery.http_pool import HttpPool
from rookery.retries import PAUSES_S, retry
from rookery.trace import Message

TIMEOUT_S = 30.0


class RewardModelInfo(BaseModel, frozen=True, strict=True):
    """The SHA-256 of the model, and the prompt style it was trained on, empty if unknown."""

    sha256: str
    style: str


class ModelRewards(BaseModel, frozen=True, strict=True):
    """Rewards in the order of the items, and the SHA-256 of the model that computed them."""

    rewards: tuple[FiniteFloat, ...]
    sha256: str


Answer = TypeVar("Answer", bound=BaseModel)


class RewardModelClient:
    """HTTP client of `rookery serve reward-model` at `url`."""

    def __init__(self, url: str, *, access: Access = OPEN) -> None:
        self.url = url.rstrip("/")
        self._http = HttpPool(self.url, timeout_s=TIMEOUT_S, access=access)

    async def card(self) -> RewardModelInfo:
        """The model that the server runs. Raises `PeerFault` if the server does not answer. There is no
        retry."""
        return await self._ask("GET", "/v1/model", RewardModelInfo)

    async def rewards(self, chats: Sequence[Sequence[Message]]) -> ModelRewards:
        """Rewards of chats that end with the answer. Raises `PeerFault` if it does not answer after several
        attempts, or not one finite number for each chat."""
        items = [
            {"messages": [{"role": turn.role, "content": turn.content} for turn in chat]} for chat in chats
        ]
        answer = await retry(
            lambda: self._ask("POST", "/v1/rewards", ModelRewards, body={"items": items}),
            on=PeerFault,
            pauses_s=PAUSES_S,
        )
        if len(answer.rewards) != len(chats):
            raise PeerFault(f"{self.url}: not {len(chats)} rewards: {str(answer.rewards)[:200]}")
        return answer

    async def close(self) -> None:
        await self._http.aclose()

    async def _ask(self, method: str, path: str, kind: type[Answer], *, body: object = None) -> Answer:
        try:
            response = await self._http.request(method, path, json=body)
            if response.status_code == 401:
                raise PeerFault(f"the reward model at {self.url} refuses the token: {REMEDY}")
            if not response.is_success:
                raise PeerFault(f"{method} {self.url}{path}: {response.status_code} {response.text[:300]}")
            return kind.model_validate_json(response.content)
        except ValidationError as error:
            message = validation_message(error.errors(include_url=False)[:1], root="the answer")
            raise PeerFault(f"{method} {self.url}{path}: {message}") from error
        except httpx.HTTPError as error:
            raise PeerFault(f"{method} {self.url}{path}: {cause_message(error)}") from error
