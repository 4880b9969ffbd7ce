"""CPU time of a fresh process: the import, and the first float16 product with the packaged database of sm_90.

    pytest benchmarks/host/bench_start.py --benchmark-columns=median -s

Medians of seven processes, in milliseconds of CPU beyond NumPy's and CuPy's own imports. Bytecode is cached, as after
an installation: the first process, which writes it, does not count.
"""

import json
import os
import subprocess
import sys
from statistics import median

import pytest

pytest.importorskip("cupy")

ROUNDS = 7
STAGES = ("import", "modules", "library", "call")
CODE = """
import json, sys, time
import cupy, numpy
import unittest.mock
def lap():
    now = time.process_time() * 1e3
    laps.append(now - began[0])
    began[0] = now
laps, began = [], [time.process_time() * 1e3]
import gensor_kernels
lap()
from gensor_kernels.devices import cuda
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection.load import library
lap()
from benchmarks.host.without_gpu import ARCH, fake_allocator, stub_runtime
with fake_allocator(), stub_runtime(()) as runtime:
    a, b, c = (cupy.empty((512, 512), numpy.float16) for _ in range(3))
    began[0] = time.process_time() * 1e3
    runtime.library = library(ARCH)
    lap()
    gensor_kernels.matmul(a, b, out=c)
    lap()
    assert next(iter(runtime.plans.values())).tier < 4
print(json.dumps(laps))
"""


def test_first_call_of_a_process(benchmark, tmp_path):
    """The import and the modules of a first call, the databases, and the call itself."""
    ours = {"PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode"), "GENSOR_DB": str(tmp_path / "own.db")}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | ours
    found = []

    def run():
        done = subprocess.run([sys.executable, "-c", CODE], env=environment, stdout=subprocess.PIPE, check=True)
        found.append(json.loads(done.stdout))

    benchmark.pedantic(run, rounds=ROUNDS, warmup_rounds=1)
    laps = [median(stage) for stage in zip(*found[-ROUNDS:], strict=True)]
    benchmark.extra_info |= {name: round(ms, 1) for name, ms in zip(STAGES, laps, strict=True)}
    words = ", ".join(f"{name} {ms:.0f}" for name, ms in zip(STAGES, laps, strict=True))
    print(f"\n{benchmark.name}: {words}; {sum(laps):.0f} ms of CPU")
