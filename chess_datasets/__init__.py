"""Positions and data sets from games. Not `datasets`, which is a package of Hugging Face."""
