"""`gensor-tune --cluster`: the records of a run on one machine, whatever happens to workers and client meanwhile."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("distributed", reason="Dask is not installed")

from gensor_database.record import Kernel, Record
from tests.doubles.schedulers import ROOT, alive, children, until
from tests.doubles.store_rows import everything

pytestmark = [pytest.mark.fleet, pytest.mark.usefixtures("needs_emulator")]
SHAPES = """op,m,n,k,dtype
matmul,16,64,64,fp64
matmul,32,64,64,fp64
matmul,64,64,64,fp32
matmul,32,64,96,fp32
"""
#: Two parts of one capability, whose kernels both of them may have.
ARCHS = ("orin-nano-8gb", "agx-orin-64gb")
EPOCH = {"SOURCE_DATE_EPOCH": "1700000000"}


def command(folder, *options, shapes=SHAPES):
    line = [sys.executable, "-m", "gensor_tuner.cli.start"]
    for arch in ARCHS:
        line += ["--arch", arch]
    (folder / "net").mkdir(exist_ok=True)
    file = folder / "net" / "shapes.csv"  # records name the file and its folder
    file.write_text(shapes)
    return [*line, "--shapes", str(file), "--db", str(folder / "k.db"), "--top", "2", *options]


LIAR = {"DASK_DISTRIBUTED__WORKER__PRELOAD": "['tests.doubles.liar']"}


def run(line, **environment):
    environment = {**os.environ, **EPOCH, **environment}
    return subprocess.run(line, env=environment, capture_output=True, text=True, cwd=ROOT)


def stored(folder):
    path = folder / "k.db"
    return sum(isinstance(row, Record) for row in everything(path).values()) if path.exists() else 0


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The rows that a run on one machine stores."""
    folder = tmp_path_factory.mktemp("here")
    assert run(command(folder, "--jobs", "1")).returncode == 0
    assert stored(folder) == 8
    return everything(folder / "k.db")


def test_a_worker_that_compiles_something_else_is_found_out(tmp_path):
    """Its cubins are well-formed, and its reports agree with them."""
    line = command(tmp_path, "--cluster", "local:2", "--distrust", shapes=SHAPES[: SHAPES.index("matmul,32")])
    done = run(line, **LIAR)
    assert done.returncode == 1 and "a worker's binary is another than the one that is compiled here" in done.stdout
    assert not any(isinstance(row, Kernel) for row in everything(tmp_path / "k.db").values())


@pytest.mark.nightly
def test_workers_may_be_killed(here, tmp_path):
    """Two of them die at random, and honest workers store what one machine stores."""
    line = command(tmp_path, "--cluster", "local:2", "--distrust")
    drawn, killed = random.Random(3), 0
    with subprocess.Popen(line, env={**os.environ, **EPOCH}, stdout=subprocess.DEVNULL) as child:
        while child.poll() is None:
            time.sleep(drawn.uniform(1.0, 2.0))
            workers = [pid for pid, name in children(child.pid) if "spawn_main" in name]
            if workers and killed < 2 and (tmp_path / "k.db").exists():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(drawn.choice(workers), signal.SIGKILL)
                    killed += 1
    assert child.returncode == 0 and killed and everything(tmp_path / "k.db") == here


@pytest.mark.nightly
def test_a_command_that_is_killed_goes_on_and_leaves_no_process(here, tmp_path):
    line = command(tmp_path, "--cluster", "local:2")
    with subprocess.Popen(line, env={**os.environ, **EPOCH}, stdout=subprocess.DEVNULL) as child:
        until(lambda: stored(tmp_path), 120.0)
        left = [pid for pid, _ in children(child.pid)]
        child.kill()
    before = stored(tmp_path)
    assert 0 < before <= 8 and left
    until(lambda: not any(map(alive, left)))
    assert run(line).returncode == 0 and everything(tmp_path / "k.db") == here
