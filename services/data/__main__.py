"""`python -m services.data`: positions over HTTP and gRPC, as `rookery serve data`."""

from rookery.command_line import main_of

main = main_of("serve data", __name__)
