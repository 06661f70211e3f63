"""vLLM's OpenAI server, with a `/reload` route for new policy versions."""
