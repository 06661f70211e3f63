"""`python -m bench.reward.reading`: how fast the scheme `truth` reads texts, beside the engine's searches.

Every kind of text is read about positions of real games; times are of one core's processor time. A search is
what the service makes for the best move of a position. The texts: sentences of the commentary library that
are true of the position; sentences in its words that are about another position, mostly false; prose that is
not read; and the slowest text known, one long row of clauses of which the last cannot be read.

With `--replies FILE` it counts instead what is read of models' replies: JSON lines with `model`, `fen` and
`response`. `bench.reward.prose` counts, without the reader, the sentences that name something checkable; they
are read if one of their claims is true or false. Claims of the forms that it can decide are labelled by it
too; those on which both differ are listed.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import chess
from rich.console import Console
from rich.table import Table

from bench.reward.agreement import scored
from bench.reward.prose import checkable, label
from bench.reward.workload import positions
from commentary import read
from commentary.concept import position_findings
from commentary.naming import Naming
from rookery.config.reward import RewardSettings
from rookery.trace import ScoreItem, Verdict
from services.reward.truth import READ_CHARS, read_reasoning

SOURCE = Path("samples/lichess.pgn.zst")
CHARS = 1000
WIDTH = 200
"""Of the table in a file."""
PROSE = (
    "Somehow all of this reminds me of an old game that I have seen in a book. The most natural square for "
    "this piece seems to be the one that was left a few moves ago, although it is not obvious what follows "
    "if the exchange is declined. I should also keep an eye on the long diagonal. "
)
SLOWEST = ("Nxh5 takes the queen and attacks it, and " * CHARS)[:590] + "x.\n"
"""As long as a sentence may be."""


def main() -> None:
    """Prints the table."""
    options = _arguments()
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    if options.replies:
        for table in _shares(options.replies):
            console.print(table)
        return
    fens = positions(SOURCE, options.texts + 1)
    texts = {
        "true claims": [(fen, written(fen, seed)) for seed, fen in enumerate(fens[1:])],
        "claims about another position": [
            (fen, written(other, seed)) for seed, (other, fen) in enumerate(pairwise(fens))
        ],
        "prose": [(fen, (PROSE * CHARS)[:CHARS]) for fen in fens[1:]],
        "prose, all that is read": [(fen, (PROSE * CHARS)[:READ_CHARS]) for fen in fens[1:]],
        "the slowest": [(fen, (SLOWEST * CHARS)[:READ_CHARS]) for fen in fens[1 : 1 + options.slowest]],
    }
    search_ms = _search_ms(fens, options.nodes)
    table = Table(
        *("text", "characters", "sentences read", "true of the claims", "texts/s", "searches' time"),
        title=f"reading beside a search of {options.nodes:,} nodes, {search_ms:.2f} ms",
    )
    for name, asked in texts.items():
        table.add_row(name, *_row(asked, search_ms))
    console.print(table)


def _shares(path: Path) -> Iterator[Table]:
    """What is read of the first `READ_CHARS` characters of replies, model by model."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    differing = Table("claim", "concept", "reader", "position", title="labelled otherwise without the reader")
    with path.open(encoding="utf-8") as lines:
        for reply in map(json.loads, lines):
            count, fen, text = counts[reply["model"]], reply["fen"], reply["response"][:READ_CHARS]
            reading = read(fen, text)
            count.update(sentence.status for sentence in reading.sentences)
            count["replies"] += 1
            count["sentences"] += len(reading.sentences)
            judged = [claim for claim in reading.claims if claim.true is not None]
            named = [claim for claim in judged if claim.concept != "named move"]
            for start, end, asserted in checkable(text):
                for kind, claims in (("read", judged), ("read beyond moves", named)):
                    here = any(claim.start < end and start < claim.end for claim in claims)
                    count.update({kind: here, f"asserted {kind}": here and asserted})
                count.update({"named": 1, "asserted": asserted})
            for claim in reading.claims:
                count.update([str(claim.true)])
                labelled = label(fen, claim.words) if claim.true is not None else None
                count.update(
                    {
                        "labelled": labelled is not None,
                        "same": labelled in (True, False) and labelled == claim.true,
                    }
                )
                if labelled not in (None, claim.true):
                    differing.add_row(claim.words, claim.concept, str(claim.true), fen)
    statuses = ("claims", "partly", "talk", "unread")
    columns = ("named", "read", "asserted", "asserted read", "of these beyond moves")
    table = Table(
        "model", "replies", "sentences", *statuses, *columns, "true", "false", "open", "labelled", "same"
    )
    for model, count in sorted(counts.items()):
        parts = [(name, "sentences") for name in statuses]
        parts[4:] = [
            ("read", "named"),
            ("asserted read", "asserted"),
            ("asserted read beyond moves", "asserted"),
        ]
        shares = [f"{count[part] / max(1, count[whole]):.1%}" for part, whole in parts]
        named_row = (str(count["named"]), shares[4], str(count["asserted"]), *shares[5:])
        numbers = (str(count[name]) for name in ("True", "False", "None", "labelled", "same"))
        table.add_row(
            model, str(count["replies"]), str(count["sentences"]), *shares[:4], *named_row, *numbers
        )
    yield table
    yield differing


def written(fen: str, seed: int) -> str:
    """About `CHARS` characters of sentences that are true of a position, in the words of the library."""
    rng = random.Random(seed)
    board = chess.Board(fen)
    names = Naming(board, "annotator", "third", rng)
    findings = [found for found in position_findings(board) if found.concept.options(names, found.values)]
    sentences: list[str] = []
    while sum(map(len, sentences)) < CHARS and findings:
        finding = rng.choice(findings)
        clause = finding.concept.write(names, finding.values)
        sentences.append(f"{clause[0].upper()}{clause[1:]}.")
    return " ".join(sentences)


def _row(asked: list[tuple[str, str]], search_ms: float) -> tuple[str, ...]:
    begin = time.process_time()
    readings = [read_reasoning(fen, text + r"\boxed{}", "") for fen, text in asked]
    seconds = time.process_time() - begin
    sentences = [sentence for reading in readings for sentence in reading.sentences]
    unread = sum(sentence.status in ("partly", "unread") for sentence in sentences)
    truths = [claim.true for reading in readings for claim in reading.claims if claim.true is not None]
    ms = 1000 * seconds / len(asked)
    return (
        f"{sum(len(text) for _, text in asked) / len(asked):,.0f}",
        f"{1 - unread / len(sentences):.1%}",
        f"{sum(truths) / len(truths):.1%} of {len(truths):,}" if truths else "-",
        f"{1000 / ms:,.0f}",
        f"{ms / search_ms:.1f}",
    )


def _search_ms(fens: list[str], nodes: int) -> float:
    """The processor time of the engine for so many nodes."""
    moves = [next(iter(chess.Board(fen).legal_moves)).uci() for fen in fens]
    items = [ScoreItem(fen, rf"\boxed{{{move}}}") for fen, move in zip(fens, moves, strict=True)]
    settings = RewardSettings(engines=1, nodes=nodes)
    verdicts, usage = scored(settings, lambda scorer: scorer.score_batch(items))
    searched = sum(v.engine.nodes for v in verdicts if isinstance(v, Verdict) and v.engine)
    return 1000 * usage.engine_cpu_s / (searched / nodes)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.reward.reading",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--replies", type=Path, metavar="FILE", help="count what is read of these, JSON lines"
    )
    parser.add_argument("--texts", type=int, default=200, help="of each kind")
    parser.add_argument("--slowest", type=int, default=5, help="of the slowest text")
    parser.add_argument("--nodes", type=int, default=1000, help="of a search")
    return parser.parse_args()


if __name__ == "__main__":
    main()
