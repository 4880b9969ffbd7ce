"""`python -m gensor_kernels` and `__version__`, with the runtime's dependencies alone."""

import subprocess
import sys
from importlib import metadata

import gensor_kernels

#: Modules of the extras, which a plain installation lacks.
EXTRAS = ("typer", "tqdm", "sqlite_utils", "cuda", "cupy", "lightgbm", "ml_dtypes")
WITHOUT = f"import sys; sys.modules |= dict.fromkeys({EXTRAS!r}); "


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)


def test_the_doctor_needs_no_extra(monkeypatch, tmp_path):
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "\u00b5.db"))
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    started = "import runpy; sys.argv = ['gensor_kernels']; runpy.run_module('gensor_kernels', run_name='__main__')"
    done = run("-W", "error", "-c", WITHOUT + started)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    for word in ("python", "platform", "sqlite", "nvrtc", "nvdisasm", "g++", "gpu", "cache", "database"):
        assert any(line.startswith(f"{word:11} ") for line in lines), word
    assert f"package     gensor-kernels {gensor_kernels.__version__}" in lines
    assert f"environment GENSOR_DB={tmp_path}/\\xb5.db" in lines
    assert next(line for line in lines if line.startswith("gpu ")).count("pip install") == 1
    assert "Traceback" not in done.stdout


def test_it_says_what_it_is_and_takes_no_other_arguments():
    assert "to paste into a bug report" in run("-m", "gensor_kernels", "--help").stdout
    refused = run("-m", "gensor_kernels", "tune")
    assert refused.returncode == 2 and "invalid choice: 'tune'" in refused.stderr


def test_the_version_is_the_installed_one(monkeypatch):
    assert gensor_kernels.__version__ == metadata.version("gensor-kernels")
    assert dir(gensor_kernels) == sorted([*gensor_kernels.__all__, "__version__"])
    assert not hasattr(gensor_kernels, "__versions__")

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert gensor_kernels.__version__ == "unknown"


def test_a_reader_that_closes_the_pipe_sees_no_traceback():
    command = [sys.executable, "-m", "gensor_kernels"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == "" and running.wait(60) == 0
