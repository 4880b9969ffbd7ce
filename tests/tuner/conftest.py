"""Tests of the tuner; those of its command need the packages of the extra [tune]."""

from importlib.util import find_spec

COMMANDS = ["cli", "regression", "report", "store", "measure/test_command.py", "test_output.py"]
collect_ignore = [] if find_spec("typer") else COMMANDS
