"""The `rookery` command, and `python -m launcher` for when it is not on the PATH: `rookery.command_line`."""

from rookery.command_line import main as main
