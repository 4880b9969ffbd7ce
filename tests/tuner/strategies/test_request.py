"""Walks as tasks: their keys."""

import os
import subprocess
import sys
from dataclasses import replace

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.strategies.request import Request

ASKED = """
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.strategies.request import Request
print(Request(matmul.workload(64, 48, 40), lookup("sm_87"), 0, "full").key)
"""


def test_equal_walks_have_one_key_in_every_process():
    """A run that continues after an interruption is another process."""
    own = Request(matmul.workload(64, 48, 40), lookup("sm_87"), 0, "full").key
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        found = subprocess.run(
            [sys.executable, "-c", ASKED], env=environment, capture_output=True, text=True, check=True
        )
        assert found.stdout.strip() == own


def test_walks_that_may_find_something_else_have_another_key():
    own = Request(matmul.workload(64, 48, 40), lookup("sm_87"), 0, "full")
    arch = lookup("sm_87")
    others = [
        replace(own, seed=1),
        replace(own, graph="paper"),
        replace(own, strategy="random"),
        replace(own, evaluations=10),
        replace(own, workload=matmul.workload(64, 48, 56)),
        replace(own, arch=lookup("sm_90")),
        replace(own, arch=replace(arch, features=arch.features - {"tf32"})),
        replace(own, arch=replace(arch, rates={**arch.rates, "imad": 1.0})),
    ]
    assert len({own.key, *(each.key for each in others)}) == 1 + len(others)
