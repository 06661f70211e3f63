"""`python -m launcher`: the `rookery` command, for when it is not on the PATH."""

from rookery.command_line import main_of

main = main_of("", __name__)
