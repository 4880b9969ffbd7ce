"""gensor-tune --version, and completions by the shells' own mechanisms."""

import os
import shutil
import subprocess
import sys
from importlib import metadata

import pytest

RUN = [sys.executable, "-c", "from gensor_tuner.cli.start import main; main()"]
#: Variables that each shell's script sets when tab is pressed after `gensor-tune sh`.
ASKED = {
    "bash": {"COMP_WORDS": "gensor-tune sh", "COMP_CWORD": "1"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "gensor-tune sh"},
    "fish": {"_TYPER_COMPLETE_ARGS": "gensor-tune sh", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


@pytest.mark.parametrize("shell", ASKED)
def test_a_shell_gets_its_script_and_completions(gensor_tune, shell):
    code, out, _ = gensor_tune("completion", shell)
    assert code == 0 and "_GENSOR_TUNE_COMPLETE" in out and "gensor-tune" in out
    if shell != "fish" and shutil.which(shell):  # the script is one of this shell
        subprocess.run([shell, "-n"], input=out, text=True, check=True)
    asked = {**os.environ, "_GENSOR_TUNE_COMPLETE": f"complete_{shell}", **ASKED[shell]}
    done = subprocess.run(RUN, env=asked, capture_output=True, text=True)
    assert "show" in done.stdout and "merge" not in done.stdout, done.stderr


def test_the_version_is_printed_and_other_shells_are_refused(gensor_tune):
    assert gensor_tune("--version") == (0, f"gensor-kernels {metadata.version('gensor-kernels')}\n", "")
    code, out, err = gensor_tune("completion", "tcsh")
    assert code == 2 and not out and "'tcsh' is not one of bash, zsh, fish" in err
