"""Any player as a UCI engine, for GUIs, match runners and lichess-bot."""
