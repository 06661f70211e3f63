"""`python -m services.reward` serves; `python -m services.reward score FEN RESPONSE` judges one answer."""

import asyncio
import json
import sys
from dataclasses import asdict

from rookery.errors import RookeryError, SetupError
from rookery.settings import fail
from services.reward.settings import RewardSettings

PROG = "python -m services.reward"


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    try:
        if argv[:1] == ["score"]:
            return _score(argv[1:])
        _serve(RewardSettings.parse(argv, prog=PROG))
    except SetupError as error:
        return fail(error)
    return 0


def _serve(settings: RewardSettings) -> None:
    from rookery import logs
    from services.reward.service import run

    logs.configure("reward")
    asyncio.run(run(settings))


def _score(argv: list[str]) -> int:
    import argparse

    from services.reward.local import LocalScorer
    from services.reward.scorer import Item

    parser = argparse.ArgumentParser(
        prog=f"{PROG} score", description="Judges one answer, no service needed."
    )
    parser.add_argument("fen", help="the position")
    parser.add_argument("response", help=r"the completion, such as '\boxed{Nf3}'")
    parser.add_argument("--scheme", default="", help="delta or best")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(argv)
    scorer = LocalScorer(RewardSettings(engines=1))
    try:
        judged = scorer.score(Item(options.fen, options.response, scheme=options.scheme))
    except RookeryError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    finally:
        scorer.close()
    if options.json:
        sys.stdout.write(json.dumps(asdict(judged)) + "\n")
    else:
        from services.reward.table import show

        show(judged)
    return 0


if __name__ == "__main__":
    sys.exit(main())
