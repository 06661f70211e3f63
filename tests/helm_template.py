# /// script
# requires-python = ">=3.11"
# dependencies = ["helm-python-sdk==0.2.2", "pyyaml"]
# ///
"""`helm template` by Helm's own library, for a machine without helm: `uv run --script` installs it.

Knows only the flags that test_helm_chart.py gives. Errors are Helm's, too.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import helm_python
import yaml


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` on top of `under`, table by table."""
    both = {
        key: merged(under[key], over[key])
        for key in under.keys() & over.keys()
        if isinstance(under[key], dict) and isinstance(over[key], dict)
    }
    return under | over | both


parser = argparse.ArgumentParser()
parser.add_argument("release")
parser.add_argument("chart")
parser.add_argument("--namespace")
parser.add_argument("--values", action="append", default=[])
parser.add_argument("--set", action="append", default=[])
asked = parser.parse_args()

values: dict[str, Any] = {}
for file in asked.values:
    values = merged(values, yaml.safe_load(Path(file).read_text()))
for text in asked.set:
    values = merged(values, helm_python.parse_set_string(text))
with helm_python.Chart.load(asked.chart) as chart:
    try:
        made = chart.render(values, name=asked.release, namespace=asked.namespace)
    except helm_python.HelmError as fault:
        sys.exit(str(fault))
print(*(text for name, text in sorted(made.items()) if name.endswith(".yaml")), sep="\n---\n")
