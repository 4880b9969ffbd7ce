"""gensor-tune --version, completions by the shells' own mechanisms, and packages that are missing."""

import os
import shutil
import subprocess
import sys
from importlib import metadata

import pytest

from gensor_kernels import install
from gensor_kernels.machine.arch import archs


@pytest.mark.parametrize(("module", "line"), [("typer", "archs"), ("tqdm", "--arch sm_87 --shapes x.csv")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(module, line):
    code = f"import sys; sys.modules['{module}'] = None; from gensor_tuner.cli.start import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *line.split()], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gensor-tune: {module} is not installed: pip install 'gensor-kernels[tune]'\n"


def test_a_package_that_one_command_needs_is_named_by_this_command(monkeypatch, capsys, tmp_path):
    from gensor_database.store import Store
    from gensor_tuner.cli import start

    Store.open(tmp_path / "x.db").close()
    monkeypatch.setattr(start, "keep_interrupts", lambda: None)
    monkeypatch.setattr(sys, "argv", ["gensor-tune", "show", "--kernel", "ab", "--db", str(tmp_path / "x.db")])
    monkeypatch.delitem(sys.modules, "gensor_tuner.store.show", raising=False)
    monkeypatch.setitem(sys.modules, "sqlite_utils", None)
    with pytest.raises(SystemExit) as ended:
        start.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "gensor-tune: sqlite_utils is not installed: pip install 'gensor-kernels[tune]'\n"


def test_without_metadata_the_command_is_for_the_clone(monkeypatch):
    assert install.about(ModuleNotFoundError("No module named 'os.x'", name="os.x")) is None  # of no extra
    monkeypatch.setattr(install, "PACKAGE", "gensor-kernels-absent")
    assert install.command("tune") == "pip install '.[tune]' in the clone of gensor-kernels-absent"


RUN = [sys.executable, "-c", "from gensor_tuner.cli.start import main; main()"]
#: Prints at its end which modules a program has imported.
LISTED = """import atexit, sys
atexit.register(lambda: print("modules:", *(name for name, module in sys.modules.items() if module)))
"""
#: Packages that take a tenth of a second and more to import, and folders that import them.
HEAVY = {"numpy", "cupy", "onnx", "torch", "dask", "distributed", "sqlite3", "sqlite_utils", "msgspec", "tqdm", "rich"}
HEAVY |= {"pydantic"}
FOLDERS = {"gensor_kernels.dispatch", "gensor_kernels.families", "gensor_kernels.graph", "gensor_tuner.run"}
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


def complete_in_bash(line):
    """Return what bash offers when tab is pressed after a line of words without quotes."""
    words = line.split(" ")
    asked = {"_GENSOR_TUNE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return subprocess.run(RUN, env={**os.environ, **asked}, capture_output=True, text=True).stdout.split()


def test_a_shell_completes_archs_parts_and_power_modes():
    for line, offered in {
        "gensor-tune --arch orin-nx": ["orin-nx-16gb", "orin-nx-8gb"],
        "gensor-tune --arch agx-orin-32gb@": [f"agx-orin-32gb@{mode}" for mode in ("maxn", "40w", "30w", "15w")],
        "gensor-tune run net.onnx --emulate jetson-orin-nano-4": ["jetson-orin-nano-4gb"],
        "gensor-tune shapes net.onnx --arch sm_8": ["sm_80", "sm_86", "sm_87", "sm_89"],
        "gensor-tune show --arch rtx-50": ["rtx-5090", "rtx-5080"],
        "gensor-tune run net.onnx --dtype f": ["float16"],
        "gensor-tune archs geforce-rtx-4": ["geforce-rtx-4090", "geforce-rtx-4070"],
    }.items():
        assert complete_in_bash(line) == offered, line
    everything = complete_in_bash("gensor-tune --arch ")
    assert {arch.name for arch in archs()} | {arch.part for arch in archs()} == set(everything)


def test_the_version_is_printed_and_other_shells_are_refused(gensor_tune):
    assert gensor_tune("--version") == (0, f"gensor-kernels {metadata.version('gensor-kernels')}\n", "")
    code, out, err = gensor_tune("completion", "tcsh")
    assert code == 2 and not out and "'tcsh' is not one of bash, zsh, fish" in err


@pytest.mark.parametrize(
    ("line", "tab"),
    [
        *((line, False) for line in ("--help", "show --help", "--version", "archs", "completion zsh")),
        *((line, True) for line in ("sh", "show --ar", "--ver")),
    ],
)
def test_help_the_list_of_parts_and_completions_import_nothing_heavy(line, tab):
    asked = {"_GENSOR_TUNE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": f"gensor-tune {line}"} if tab else {}
    command = [sys.executable, "-c", LISTED + RUN[-1], *([] if tab else line.split())]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True)
    shown, _, modules = done.stdout.rpartition("modules:")
    assert shown.strip() and "gensor_tuner.cli.app" in modules.split(), done.stderr
    assert not (HEAVY | FOLDERS) & {*modules.split()}


@pytest.mark.parametrize("line", ["show", "where", "prune --dry-run", "clean --dry-run", "export x.csv"])
def test_commands_about_a_database_need_no_walk_and_no_graphs(tmp_path, line):
    from gensor_database.store import Store

    Store.open(tmp_path / "x.db").close()
    environment = {**os.environ, "GENSOR_DB": str(tmp_path / "x.db"), "GENSOR_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", LISTED + RUN[-1], *line.split()]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    modules = {*done.stdout.rpartition("modules:")[2].split()}
    assert done.returncode == 0 and "gensor_tuner.cli.app" in modules, done.stderr
    compares = line.split()[0] in ("show", "export")  # with CuPy's calls, which the dispatch knows
    unwanted = {"gensor_kernels.graph", "gensor_tuner.run", "gensor_tuner.search", "pydantic"}
    assert not modules & (unwanted if compares else {*unwanted, "gensor_kernels.dispatch"})
