"""What runs left behind: kept, read again, judged again."""
