"""GENSOR_DETERMINISTIC=1: two processes with one database and two orders use the same kernels and give the same bits.

The database has races and timings under two drivers.

Nightly: 10,000 calls per process, `python -m tests.campaigns.test_determinism ORDER`, in a random order. Each kernel
marks the bits of its results.
"""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gensor_database import Store, Timing, canonical, layers
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import load
from tests.conftest import ROOT
from tests.doubles.device import FakeDevice
from tests.doubles.exact import Exact, Turns
from tests.doubles.kernels import ARCH
from tests.doubles.store_rows import everything
from tests.doubles.stored import stock_classes

from .lives.calls import KINDS, Kind

pytestmark = pytest.mark.nightly
CALLS = 10_000
CLASSES = [("knn", True), ("mnn", True), ("kkn", True), ("knn", False), ("mnn", False), ("kkn", False), ("sss", False)]


def made_runtime(**salted):
    """A runtime that races, and what computes its results: kernels with something in place of cubins."""
    shelf = load.library(ARCH)
    shelf.include(None)
    for kernel in shelf.contents.kernels.values():
        kernel.__dict__["code"] = replace(kernel.read(), cubin=b"\x7fELF")
    exact = Exact(shelf.contents.kernels, **salted)
    return Runtime(FakeDevice(execute=exact, clock=Turns()), shelf), exact


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """Kernels of several classes, the races of some kinds of calls, and half their times under another driver."""
    path = tmp_path_factory.mktemp("determinism") / "user.db"
    classes = {("float32", "float32", "ieee"): [(*each, "contraction_simt", False) for each in CLASSES]}
    with pytest.MonkeyPatch.context() as only:
        only.setenv("GENSOR_DB", str(path))
        only.setenv("GENSOR_TUNE", "auto")
        only.setattr("gensor_database.layers.PRETUNED", path.parent / "nothing ships here")
        stock_classes(path, {"sm_87": classes})
        runtime, _ = made_runtime()
        for index in range(0, KINDS, 4):
            for _ in range(3):
                Kind(index).call(runtime)
        runtime.notes.flush(30.0)
    with Store.open(path) as store:
        raced = list(store.rows(Timing))
        best = [row for row in raced if row.kernel_digest is not None][::3]
        store.add(*(replace(row, median_us=row.median_us / 2, device=canonical({"driver": 2})) for row in best))
    assert len({row.key for row in raced}) >= KINDS / 4 - 2
    return path


def calls(database, order, environment):
    """The report of a process by kind of call, and the number of its races, with which it exits."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaigns.test_determinism", str(order)],
        cwd=ROOT,
        env={**os.environ, "GENSOR_TUNE": "auto", "GENSOR_DB": str(database), **environment},
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.returncode


def test_two_processes_give_equal_bits(database):
    before = everything(database)
    asked = [{"GENSOR_DETERMINISTIC": "1", "PYTHONHASHSEED": str(order)} for order in (1, 2)]
    (first, races), (second, more) = (calls(database, order, each) for order, each in enumerate(asked))
    assert races == more == 0
    assert first == second
    assert all(len(each["bits"]) == len(each["kernels"]) == 1 for each in first)
    served = {each["kernels"][0] for each in first}
    assert len(served) > 3 and "library" in served  # timings, predictions and the library decide
    assert everything(database) == before  # nothing is written
    print(f"campaign: 2 x {CALLS} calls, {len(served) - 1} kernels and the library")


def test_without_the_setting_they_need_not(database):
    """The control: races continue there, and change the kernel that serves."""
    found, races = calls(database, 1, {})
    assert any(len(each["bits"]) > 1 for each in found) or races


def main(order):
    """Print, for each kind of call, the digests of its results and their kernels; return the number of races."""
    layers.PRETUNED = Path(os.devnull) / "nothing ships here"  # of kernels that share their code, one is known by it
    runtime, exact = made_runtime(salted=True)
    kinds = [Kind(index) for index in range(KINDS)]
    found = [{"bits": set(), "kernels": set()} for _ in kinds]
    for index in np.random.default_rng(order).permutation(np.arange(CALLS) % KINDS):
        exact.last = "library"
        result = kinds[index].call(runtime)
        found[index]["bits"].add(hashlib.sha256(np.ascontiguousarray(result).tobytes()).hexdigest())
        found[index]["kernels"].add(exact.last)
    print(json.dumps([{name: sorted(values) for name, values in each.items()} for each in found]))
    return len(runtime.device.races)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
