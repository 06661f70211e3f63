"""The commands of `rookery data`. `--help` imports only the settings, which are light."""
