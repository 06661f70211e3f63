"""The `vllm.general_plugins` entry point: every vLLM process loads it."""

from services.inference.server import cpu_lora, orphan, shutdown


def load() -> None:
    """Installs the patches. vLLM calls it at the start of every process, before it loads a model."""
    shutdown.exit_on_signals_while_starting()
    orphan.end_with_parent()
    cpu_lora.install()
