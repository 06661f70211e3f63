"""Grafana's dashboards as code: a module for each, written to deploy/grafana/dashboards as JSON."""
