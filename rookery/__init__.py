"""What all Rookery services share: records, wire format, streams, clients, serving.

Importing it never imports torch, vllm, peft, transformers or fastapi.
"""

__version__ = "0.3.0"
