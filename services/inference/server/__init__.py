"""vLLM's own OpenAI server with `/reload` beside it."""
