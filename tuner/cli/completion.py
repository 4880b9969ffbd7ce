"""`gensor-tune completion`: a script for the shell, by typer's own mechanism."""

from __future__ import annotations

import os

from typer.completion import completion_init, get_completion_script

PROGRAM = "gensor-tune"
SHELLS = ("bash", "zsh", "fish")
#: The variable by which a shell's script requests completions.
VARIABLE = "_GENSOR_TUNE_COMPLETE"


def script(shell: str) -> str:
    """Return the script that a shell reads once; it calls `gensor-tune` for every completion."""
    return get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell)


def answer_scripts() -> None:
    """Let typer answer a shell's request for completions."""
    if VARIABLE in os.environ:
        completion_init()
