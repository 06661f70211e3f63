"""What the fit commands learn from: chats and pairs, from files and URLs."""
