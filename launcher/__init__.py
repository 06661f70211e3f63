"""A whole run on one machine: `rookery up` and `rookery demo`.

Starts `python -m services.X` for every part and imports none of them.
"""
