"""Runs all services on one machine: `rookery up` and `rookery demo`.

Each service is started as `python -m services.X`. No service is imported here.
"""
