"""`rookery data inspect`: describes files and folders, as text or JSON."""

import argparse
import json
import sys
from typing import Any

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from rookery.masking import mask_setting
from services.data.commands.flags import command_parser, natural
from services.data.commands.inspection import Format, Inspection, inspect

EXAMPLES = """  rookery data inspect runs/pairs/pairs.parquet
  rookery data inspect runs/archive
  rookery data inspect s3://bucket/positions --json
  rookery data inspect games.pgn.zst moves.jsonl --items 1 --count
"""


def main(argv: list[str]) -> int:
    """Runs the command and returns the exit status: 1 if a file differs from its manifest."""
    options = _parser().parse_args(argv)
    console = Console()
    sound = True
    for place in options.places:
        found = inspect(place, items=options.items, count=options.count)
        sound = sound and found.sound
        if options.json:
            sys.stdout.write(json.dumps(found.as_json(), default=str) + "\n")
        else:
            _show(found, console)
    return 0 if sound else 1


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "inspect",
        "Shows the format of a file (Parquet, JSON, JSON lines, PGN, compressed or not), its schema and its\n"
        "first items, and compares it with the manifest beside it by SHA-256. For a folder, shows the data\n"
        "set or archive in it. The exit status is 1 if a file differs from its manifest.",
        examples=EXAMPLES,
    )
    parser.add_argument("places", nargs="+", metavar="PLACE", help="file, folder or URL")
    parser.add_argument("--items", type=natural, default=3, help="number of first items to show (3)")
    parser.add_argument("--count", action="store_true", help="count JSON lines, which reads the whole file")
    parser.add_argument("--json", action="store_true", help="one JSON object for each place")
    return parser


def _show(found: Inspection, console: Console) -> None:
    console.print(
        f"[bold]{mask_setting(found.place)}[/]: {found.format.value}", highlight=False, soft_wrap=True
    )
    for name, value in found.facts.items():
        _fact(name, value, console)
    if found.schema:
        table = Table("column", "type", box=None, padding=(0, 2), header_style="bold")
        for column, kind in found.schema.items():
            table.add_row(column, kind)
        console.print(table)
    for check in found.checks:
        mark = "[green]holds[/]" if check.holds else "[red]DIFFERS[/]"
        console.print(f"  manifest: {check.name} {mark} ({check.detail})", highlight=False, soft_wrap=True)
    for item in found.first:
        _item(item, found.format, console)
    console.print()


def _fact(name: str, value: Any, console: Console) -> None:
    if isinstance(value, dict):
        console.print(f"  {name}:", highlight=False)
        console.print_json(json.dumps(value, default=str))
        return
    shown = f"{value:,}" if isinstance(value, int) else value
    console.print(f"  {name}: {shown}", highlight=False, markup=False, soft_wrap=True)


def _item(item: Any, form: Format, console: Console) -> None:
    if form in (Format.PGN, Format.TEXT):
        console.print(item, markup=False, highlight=False, soft_wrap=True)
        return
    text = json.dumps(item, indent=2, default=str, ensure_ascii=False)
    if console.is_terminal:
        console.print(Syntax(text, "json", background_color="default", word_wrap=True))
    else:
        console.print(text, markup=False, highlight=False, soft_wrap=True)
