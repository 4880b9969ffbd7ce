"""`gensor-tune --cluster`: the records of a run on one machine, whatever happens to workers and client meanwhile."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="Dask is not installed")

from gensor_database.record import TABLES, Record
from gensor_database.store import Store
from tests.doubles.schedulers import alive, children

pytestmark = [pytest.mark.fleet, pytest.mark.usefixtures("needs_emulator")]
SHAPES = """op,m,n,k,dtype
matmul,16,64,64,fp64
matmul,32,64,64,fp64
matmul,64,64,64,fp32
matmul,32,64,96,fp32
"""
#: Two parts of one capability, whose kernels both of them may have.
ARCHS = ("orin-nano-8gb", "agx-orin-64gb")
ROOT = Path(__file__).resolve().parents[3]
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


def run(folder, *options, shapes=SHAPES, **environment):
    """A run that has ended."""
    environment = {**os.environ, **EPOCH, **environment}
    return subprocess.run(
        command(folder, *options, shapes=shapes), env=environment, capture_output=True, text=True, cwd=ROOT
    )


def tuned(folder, *options, **environment):
    """The digests of all rows that a run stores."""
    done = run(folder, *options, **environment)
    assert done.returncode == 0, done.stderr
    return rows(folder)


def rows(folder):
    with Store.open(folder / "k.db", readonly=True) as store:
        return {kind.TABLE: [row.digest for row in store.rows(kind)] for kind in TABLES}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The rows that a run on one machine stores."""
    found = tuned(tmp_path_factory.mktemp("here"), "--jobs", "1")
    assert len(found["record"]) == 8 and found["verification"] and found["portfolio"]
    return found


def test_a_worker_that_compiles_something_else_is_found_out(tmp_path):
    """Its cubins are well-formed, and its reports agree with them."""
    done = run(tmp_path, "--cluster", "local:2", "--distrust", shapes=SHAPES[: SHAPES.index("matmul,32")], **LIAR)
    assert done.returncode == 1 and "a worker's binary is another than the one that is compiled here" in done.stdout
    assert not rows(tmp_path)["kernel"]


@pytest.mark.nightly
def test_honest_workers_pass(here, tmp_path):
    assert tuned(tmp_path, "--cluster", "local:2", "--distrust") == here


@pytest.mark.nightly
def test_workers_may_be_killed(here, tmp_path):
    """Two of them die at random, and the cluster stores what one machine stores."""
    line = command(tmp_path, "--cluster", "local:2")
    drawn, killed = random.Random(3), 0
    with subprocess.Popen(line, env={**os.environ, **EPOCH}, stdout=subprocess.DEVNULL) as child:
        while child.poll() is None:
            time.sleep(drawn.uniform(1.0, 2.0))
            workers = [pid for pid, name in children(child.pid) if "spawn_main" in name]
            if workers and killed < 2 and (tmp_path / "k.db").exists():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(drawn.choice(workers), signal.SIGKILL)
                    killed += 1
    assert child.returncode == 0 and killed and rows(tmp_path) == here


@pytest.mark.nightly
def test_a_command_that_is_killed_goes_on_and_leaves_no_process(here, tmp_path):
    line = command(tmp_path, "--cluster", "local:2")
    with subprocess.Popen(line, env={**os.environ, **EPOCH}, stdout=subprocess.DEVNULL) as child:
        deadline = time.monotonic() + 120
        while not stored(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.05)
        left = [pid for pid, _ in children(child.pid)]
        child.kill()
    before = stored(tmp_path)
    assert 0 < before <= 8 and left
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in left) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in left if alive(pid)]
    assert tuned(tmp_path, "--cluster", "local:2") == here


def stored(folder):
    if not (folder / "k.db").exists():
        return 0
    with Store.open(folder / "k.db", readonly=True) as store:
        return len(list(store.rows(Record)))
