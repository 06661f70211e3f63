"""What each of vLLM's processes loads through its `vllm.general_plugins` door."""

from services.inference.server import cpu_lora, ending, orphan


def load() -> None:
    """Called by vLLM at the start of every process, before it loads a model."""
    ending.end_while_starting()
    orphan.end_with_parent()
    cpu_lora.install()
