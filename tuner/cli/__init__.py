"""The command line: one file per command, each parses, calls, prints and exits."""

from tuner.cli import check, demo_model, init, pareto, start, status, ui, workload
from tuner.cli.app import app, main

__all__ = [
    "app",
    "check",
    "demo_model",
    "init",
    "main",
    "pareto",
    "start",
    "status",
    "ui",
    "workload",
]
