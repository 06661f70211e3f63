"""Traces to gradient to adapter; and the supervised start."""
