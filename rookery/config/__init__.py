"""The settings of each service and command. Nothing here imports a service, torch, vLLM or fastapi."""
