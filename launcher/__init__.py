"""Runs all services on one machine: `rookery up` and `rookery demo`.

Each service is started as `rookery serve NAME`. No service is imported here.
"""
