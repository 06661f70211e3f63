"""The version of a Redis server, or of a Valkey, and whether its Lua has the flaws of 2025."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

FIXED = {
    "Redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "Valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4, (9, 0): 0},
}
"""The first patch of each release whose scripts cannot break out of Lua: CVE-2025-49844, -46817, -46818
and -46819. See https://redis.io/blog/security-advisory-cve-2025-49844/ and Valkey's release notes."""

_VERSION = re.compile(r"(?P<name>Redis|Valkey) server v=(?P<version>\d+\.\d+\.\d+)")


class ServerVersion(NamedTuple):
    """A version, such as Redis 7.2.11. Versions are ordered by number alone."""

    number: tuple[int, int, int]
    name: str

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The version in what `redis-server --version` prints, or None."""
        found = _VERSION.search(text)
        return cls(_number(found["version"]), found["name"]) if found else None

    @classmethod
    def of_info(cls, info: Mapping[str, Any]) -> Self:
        """The version in the answer to INFO. Valkey has a version of Redis there too, for old clients."""
        if valkey := info.get("valkey_version"):
            return cls(_number(valkey), "Valkey")
        return cls(_number(info["redis_version"]), "Redis")

    @property
    def has_flaws(self) -> bool:
        """Whether its scripts may break out of Lua. Releases that are not in `FIXED` may, unless newer.

        A distribution may have fixed an older version.
        """
        release, patch, fixed = self.number[:2], self.number[2], FIXED[self.name]
        return patch < fixed[release] if release in fixed else release < max(fixed)

    def __str__(self) -> str:
        text = f"{self.name} {'.'.join(map(str, self.number))}"
        return (
            f"{text}, whose Lua may have known flaws (CVE-2025-49844): update it" if self.has_flaws else text
        )


def _number(version: str) -> tuple[int, int, int]:
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    return major, minor, patch
