"""`gensor-tune completion`: a script for the shell, by typer's own mechanism."""

from __future__ import annotations

import os

from typer.completion import completion_init, get_completion_script

PROGRAM = "gensor-tune"
SHELLS = ("bash", "zsh", "fish")
#: By this variable the script asks for completions.
VARIABLE = "_GENSOR_TUNE_COMPLETE"


def script(shell: str) -> str:
    """Return the script that a shell reads once; it calls `gensor-tune` for every completion."""
    return get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell)


def answer_scripts() -> None:
    """Let typer answer where a shell's script asks for completions."""
    if VARIABLE in os.environ:
        completion_init()
