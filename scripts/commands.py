"""`python -m scripts.commands` writes docs/commands.md."""

from pathlib import Path

from rookery.command_line import usage
from rookery.commands import COMMANDS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"

_INTRODUCTION = """# Commands

`rookery COMMAND --help` lists the flags of a command. Each is also an environment variable and a line of the
TOML file that `ROOKERY_CONFIG` names. Exit status: 0 if all is done, 1 if it failed, 2 if the command, its
settings or its input are wrong, 130 after Ctrl-C.
"""


def text() -> str:
    """What the page should hold."""
    families = ("", *(command.name for command in COMMANDS if not command.function))
    return "\n".join((_INTRODUCTION, *(f"```text\n{usage(family)}```\n" for family in families)))


if __name__ == "__main__":
    PAGE.write_text(text())
