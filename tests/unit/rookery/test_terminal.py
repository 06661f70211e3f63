"""What others wrote cannot steer the terminal."""

import io
import logging
import re

from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from rookery.errors import InvalidInput
from rookery.logs import TextFormatter
from rookery.masking import printable
from rookery.terminal import SafeConsole
from tests.conftest import ROOT

HOSTILE = "\x1b[2J\x07\x9b31m\u202egnp\u2066\x85\u2028\udcff"
ESCAPED = r"\u001b[2J\u0007\u009b31m\u202egnp\u2066\u0085\u2028\udcff"


def test_control_characters_are_escaped_and_all_others_stay() -> None:
    assert printable(HOSTILE) == ESCAPED
    plain = "Łódź ♞f3\t“quoted” \U0001f600\nnext"
    assert printable(plain) == plain


def test_errors_and_text_logs_have_none() -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "read %s", (HOSTILE,), None)
    assert TextFormatter("%(message)s").format(record) == f"read {ESCAPED}"
    assert str(InvalidInput(HOSTILE)) == ESCAPED


def test_a_console_escapes_what_it_prints_but_not_its_own_styles() -> None:
    out = io.StringIO()
    console = SafeConsole(file=out, force_terminal=True, width=500, markup=False, color_system="standard")
    table = Table("name")
    table.add_row(HOSTILE)
    console.print(HOSTILE, Text(HOSTILE, "red"), table)
    with Progress(console=console) as progress:
        progress.add_task(HOSTILE.replace("[2J", ""))
    text = re.sub(r"\x1b\[(?:\d+;?)*[mK]|\x1b\[\d*A|\x1b\[\?25[lh]|\r", "", out.getvalue())  # rich's own
    assert printable(text) == text
    assert text.count(r"\u001b") >= 4
    assert "\x1b[31m" in out.getvalue()


def test_every_command_prints_to_such_a_console() -> None:
    others = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("rookery", "launcher", "services")
        for path in (ROOT / folder).rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"\bConsole\((?!file=io|quiet=True)", line)
    }
    assert not others
