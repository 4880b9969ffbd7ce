"""CPU time of loading and planning whole models in fresh processes, next to onnxruntime's session creation.

    pytest benchmarks/bench_load.py -s

Seconds of CPU, least of five processes: `gensor_kernels.load` and the plan of the first call, imports included, with an
empty cache folder and with the plan of the process before in it; and `onnxruntime.InferenceSession` with one thread,
with and without its import. Bytecode is cached, as after an installation.
"""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest

from benchmarks.models import SIZES
from tests.graph.networks import exported_graphs

pytest.importorskip("onnxruntime")

ROUNDS = 5
NETWORKS = ("resnet50", "mobilenet_v2", "yolo")
OURS = """
import json, sys, time
import numpy, gensor_kernels
inputs = dict(numpy.load("inputs.npz"))
with gensor_kernels.emulated("sm_90"):
    began = time.process_time()
    gensor_kernels.load("model.onnx")._plan(inputs)
    print(json.dumps([time.process_time() - began]))
"""
THEIRS = """
import json, time
import numpy
began = time.process_time()
import onnxruntime
imported = time.process_time()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.log_severity_level = 1, 4
onnxruntime.InferenceSession("model.onnx", options, ["CPUExecutionProvider"])
ended = time.process_time()
print(json.dumps([ended - imported, ended - began]))
"""


@pytest.mark.parametrize("name", NETWORKS)
def test_load_and_plan(name, tmp_path):
    """One row per network."""
    made = exported_graphs.draw(name, "float16")
    onnx.save(made, tmp_path / "model.onnx")
    np.savez(tmp_path / "inputs.npz", **exported_graphs.inputs(made, SIZES))
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    ours = {"PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode"), "GENSOR_CACHE_DIR": str(cache), "GENSOR_PLANS": "1"}
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | ours

    def run(code):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    rows = []
    run(OURS), run(THEIRS)
    for _ in range(ROUNDS):
        shutil.rmtree(cache / "plans", ignore_errors=True)
        rows.append([*run(OURS), *run(OURS), *run(THEIRS)])
    first, second, session, imported = np.min(rows, axis=0)
    print(f"{name}: first {first:.3f} s, second {second:.3f} s")
    print(f"{name}: onnxruntime {session:.3f} s, with import {imported:.3f} s")
