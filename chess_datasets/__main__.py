"""`python -m chess_datasets COMMAND`: `rookery data COMMAND`."""

from rookery.command_line import main_of

main = main_of("data", __name__)
