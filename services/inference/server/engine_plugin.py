"""What each of vLLM's processes loads through its `vllm.general_plugins` door."""

from services.inference.server import cpu_lora, orphan


def load() -> None:
    """Called by vLLM at the start of every process, before it loads a model."""
    orphan.end_with_parent()
    cpu_lora.install()
