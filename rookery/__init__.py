"""What every Rookery service shares: records, wire, streams, clients, serving, the command.

Light on purpose: importing it never brings torch, vllm, peft, transformers or fastapi.
"""

__version__ = "0.1.0"
