"""`python -m services.reward` starts the service; `python -m services.reward score` needs no service."""

import asyncio
import sys

from rookery.errors import SetupError
from rookery.settings import fail
from services.reward.settings import RewardSettings

PROG = "python -m services.reward"


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    try:
        if argv[:1] == ["score"]:
            from services.reward.command import score

            return score(argv[1:], prog=f"{PROG} score")
        _serve(RewardSettings.parse(argv, prog=PROG))
    except SetupError as error:
        return fail(error)
    return 0


def _serve(settings: RewardSettings) -> None:
    from rookery import logs
    from services.reward.service import run

    logs.configure("reward")
    asyncio.run(run(settings))


if __name__ == "__main__":
    sys.exit(main())
