"""`python -m arena COMMAND`: `rookery arena COMMAND`."""

from rookery.command_line import main_of

main = main_of("arena", __name__)
