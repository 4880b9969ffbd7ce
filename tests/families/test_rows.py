"""The rows family in addition to its contract (test_contract.py): its lattice, its potential, what it compiles to."""

import numpy as np
import pytest

from benchmarks.sass.paths import whole
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.resources import instructions
from gensor_kernels.families.core.source import bind
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.rows.views import workload
from tests.campaign_size import sample

from .lattices import random_legal

ROWS = FAMILIES["rows"]


@pytest.mark.parametrize(
    ("arch", "name", "shape", "axes", "dtype"),
    [
        ("sm_87", "softmax", (4096, 8192), (1,), "float16"),
        ("sm_90", "softmax", (4096, 8192), (1,), "float16"),
        ("sm_87", "reduce_sum", (65536, 1024), (1,), "float32"),
        ("sm_90", "reduce_sum", (1024, 65536), (0,), "float32"),
        ("sm_90", "l2_norm", (1, 4096, 1024), (1, 2), "float32"),
        ("sm_87", "layernorm", (4096, 1024), (1,), "float16"),
    ],
)
def test_the_best_default_is_near_the_bound(arch, name, shape, axes, dtype):
    part, w = lookup(arch), workload(name, shape, axes, dtype)
    lattice = FamilySpace(ROWS, w, part)
    points = random_legal(lattice, 4000, seed=1)
    assert lattice.potential(points).min() * 1e6 <= 2 * bound_us(w, part)


def test_one_row_alone_is_split():
    w, arch = workload("l2_norm", (1, 4096, 1024), (1, 2), "float32"), lookup("sm_90")
    lattice = FamilySpace(ROWS, w, arch)
    points = random_legal(lattice, 4000, seed=1)
    columns = lattice.columns(points)
    seconds = lattice.potential(points)
    assert columns["split_k"][int(np.argmin(seconds))] >= 16
    assert seconds[columns["split_k"] == 1].min() > 3 * seconds.min()


#: Microseconds of softmax and layer norm of 4096 x 4096 in float16 on an H100, fastest first, by threads_k, items, keep
#: and online (benchmarks/results/h100-sxm.jsonl.gz).
ON_AN_H100 = {
    "softmax": {
        (64, 8, 1, 0): 25.96,
        (64, 8, 2, 0): 26.67,
        (64, 8, 0, 0): 27.71,
        (64, 8, 1, 1): 27.79,
        (32, 2, 2, 1): 30.41,
    },
    "layernorm": {(64, 8, 2, 1): 26.62, (64, 8, 0, 1): 26.70, (64, 8, 1, 1): 26.76, (32, 4, 2, 1): 28.24},
}


@pytest.mark.parametrize("name", ON_AN_H100)
def test_predictions_order_kernels_as_an_h100_does(name):
    """The fastest first, where one is faster by more than 1 %, and the slowest last."""
    part, w = lookup("h100-sxm"), workload(name, (4096, 4096), (1,), "float16")
    lattice = FamilySpace(ROWS, w, part)
    values = [dict(zip(("threads_k", "items", "keep", "online"), key, strict=True)) for key in ON_AN_H100[name]]
    predicted = 1e6 * lattice.potential(np.array([lattice.point(_row_program(w, **each)) for each in values]))
    measured = np.array(list(ON_AN_H100[name].values()))
    assert np.all(np.abs(np.log(measured / predicted)) < 0.1)
    assert predicted.argmax() == measured.argmax()
    if name == "softmax":
        assert predicted.argmin() == measured.argmin()
        assert predicted[0] < predicted[3], "two passes over registers, one that rescales"


FORMS = [
    *((name, *form) for name in ("softmax", "layernorm") for form in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 1))),
    *(("rmsnorm", keep, 1) for keep in (0, 1, 2)),
]


@pytest.mark.parametrize(
    ("dtype", "name", "keep", "online"),
    sample([(dtype, *form) for dtype in ("float16", "float32") for form in FORMS], 6),
)
def test_instructions_are_those_of_compiled_code(dtype, name, keep, online):
    """The model counts a single step as machine code has it.

    Rows that two passes keep in shared memory (keep 2, online 0) are left out: ``whole`` does not see the second pass.
    """
    arch, lanes, items, width = lookup("sm_90"), 64, 8, 16
    vector = width // np.dtype(dtype).itemsize
    w = workload(name, (4096, lanes * items * vector), (1,), dtype)
    program = _row_program(w, threads_k=lanes, items=items, keep=keep, online=online, vector=vector)
    lattice = FamilySpace(ROWS, w, arch)
    terms = lattice.terms(lattice.point(program)[None])
    binary = compile_cubin(bind(ROWS.text, ROWS.constants(program, w)), arch.target)
    code = instructions([binary.cubin], arch.target)[0]
    if code is None:
        pytest.skip("nvdisasm is not installed")
    counted = whole(code["rows"], 32 * items * width, 32 * items * width)
    assert counted is not None
    predicted = float(((terms.multiplies + terms.issue) * terms.iterations)[0])
    assert counted[1] == pytest.approx(predicted, rel=0.15)


def _row_program(problem, **values):
    rest = {"threads_m": 1, "split_k": 1, "vector": 8, "epilogue_fixed": 1, "min_blocks": 0}
    return ROWS.starters(problem, lookup("sm_90"))[0].replace(**rest | values)
