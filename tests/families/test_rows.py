"""The rows family in addition to its contract (test_contract.py): its lattice, its potential, what it compiles to."""

import numpy as np
import pytest

from benchmarks.sass.paths import whole
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.resources import instructions
from gensor_kernels.devices.emulator import build
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.source import bind
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.rows.cost import conflicts, copies, shape
from gensor_kernels.families.rows.shape import TWO_FORMS, view
from gensor_kernels.families.space import FamilySpace, Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import bound_us, bounds_us
from gensor_kernels.operators.rows.views import OPERATORS, REALS, WHOLE, whole_types, workload
from gensor_tuner.build.pool import candidate
from gensor_tuner.search.walk import walk
from gensor_tuner.verify.problem import Problem
from tests.campaign_size import sample

from .lattices import fastest, random_legal
from .verified import is_right

ROWS = FAMILIES["rows"]


@pytest.mark.parametrize(
    ("arch", "name", "shape", "axes", "dtype"),
    [
        ("sm_87", "softmax", (4096, 8192), (1,), "float16"),
        ("sm_90", "softmax", (4096, 8192), (1,), "float16"),
        ("sm_87", "reduce_sum", (65536, 1024), (1,), "float32"),
        ("sm_90", "reduce_sum", (1024, 65536), (0,), "float32"),
        ("sm_90", "l2_norm", (1, 4096, 8192), (1, 2), "float32"),
        ("sm_87", "layernorm", (4096, 1024), (1,), "float16"),
        *(
            (arch, "cumsum", *form, "float32")
            for arch in ("sm_87", "sm_90")
            for form in (((1, 2**24), (1,)), ((4096, 4096), (1,)), ((4096, 4096), (0,)), ((2**20, 8), (1,)))
        ),
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


SHORT = (1, 2, 3, 4, 7, 8, 16, 31, 64)
#: Rows of one element whose arithmetic takes longer than their bytes: a square root or two quotients per element.
DEGENERATE = {(name, dtype) for name in ("layernorm", "reduce_var") for dtype in ("float16", "bfloat16")}


#: Short rows that are not staged, because their results are wider than their elements.
WIDENED = {("cumsum", dtype) for dtype in WHOLE}


@pytest.mark.parametrize("arch", ["sm_87", "sm_80", "sm_90"])
def test_short_rows_take_at_most_twice_the_bandwidth_bound(arch):
    part = lookup(arch)
    doubles = part.rate("fma_f64") >= part.rate("fma_f32") / 2  # elsewhere their arithmetic is the bound
    slow = []
    for name in OPERATORS.keys() - {"elementwise"}:
        for dtype in REALS + whole_types(OPERATORS[name].operation):
            if (name, dtype) in WIDENED or (dtype == "float64" and not doubles):
                continue
            for k in SHORT:
                w = workload(name, (2**26 // k, k), (1,), dtype)
                ratio = fastest(ROWS, w, part) * 1e6 / bounds_us(w, part)["memory"]
                if ratio > (2.6 if k == 1 and (name, dtype) in DEGENERATE else 2.0):
                    slow.append((name, dtype, k, round(ratio, 2)))
    assert not slow


def test_a_walk_stages_short_rows():
    space = Space(workload("softmax", (2**22, 7), (1,), "float16"), lookup("sm_90"))
    program, _ = walk(space, seed=0, chains=32, steps=100, keep=1).best[0]
    assert program["staged"]


@pytest.mark.parametrize(
    ("name", "dtype"),
    sample([(name, dtype) for name in ("reduce_sum", "argmax", "softmax", "layernorm") for dtype in REALS[1:3]], 3),
)
def test_instructions_of_a_staged_row_are_those_of_compiled_code(name, dtype):
    """The loop over a thread's rows, which stay in registers, is as long as what four more rows add to the model."""
    arch, w = lookup("sm_90"), workload(name, (2**22, 8), (1,), dtype)
    lattice, terms = FamilySpace(ROWS, w, arch), {}
    values = {"items": 8, "keep": 1, "vector": 1, "epilogue_fixed": int(view(w).epilogue)}
    programs = {rows: _staged(w, threads_m=128, staged=rows, **values | _two_passes(w)) for rows in (4, 8)}
    for rows, program in programs.items():
        columns = lattice.columns(lattice.point(program)[None])
        of = lattice.terms(lattice.point(program)[None])
        terms[rows] = float((of.multiplies + of.issue)[0] - copies(view(w), shape(columns, view(w)))[0])
    binary = compile_cubin(bind(ROWS.text, ROWS.constants(programs[4], w)), arch.target)
    code = instructions([binary.cubin], arch.target)[0]
    if code is None:
        pytest.skip("nvdisasm is not installed")
    barrier = next(at for at, each in enumerate(code["rows"]) if each.opcode.startswith("BAR"))
    ends = ((each.target, at) for at, each in enumerate(code["rows"]) if each.target is not None)
    first, last = next((start, end) for start, end in ends if barrier < start < end)
    assert last - first + 1 == pytest.approx((terms[8] - terms[4]) / 4, rel=0.2)


def _two_passes(problem):
    return {"online": 0} if view(problem).rows.operation in TWO_FORMS else {}


def test_a_row_of_shared_memory_conflicts_as_the_emulator_counts():
    """Threads read their rows, of an odd number of words without conflicts, else with those of the model."""
    for dtype, k, vector in (("float32", 7, 1), ("float32", 6, 2), ("float32", 12, 4), ("float16", 32, 8)):
        w = workload("reduce_sum", (64, k), (1,), dtype)
        program = _staged(w, vector=vector, items=4)
        each, width = candidate(ROWS, program, w), vector * np.dtype(dtype).itemsize
        found = Problem(Case("any", w, dense=16), 7).run(each, build(each.source()), copies="late", order="forward")
        accesses = k // vector * 2  # of both warps
        wanted = accesses * (conflicts(width, k * np.dtype(dtype).itemsize) - max(width // 4, 1))
        assert found.bank_conflicts == wanted


@pytest.mark.parametrize(
    ("name", "dtype", "k", "values"),
    sample(
        [
            ("softmax", "float16", 7, {"items": 8, "keep": 1, "online": 0}),
            ("softmax", "float32", 3, {"items": 2, "keep": 0, "online": 1}),
            ("layernorm", "float16", 2, {"vector": 2, "keep": 1, "online": 0}),
            ("log_softmax", "float64", 5, {"items": 4}),
            ("reduce_var", "float32", 4, {"vector": 4, "keep": 1, "online": 0}),
            ("reduce_max", "int8", 3, {"items": 4, "keep": 1}),
            ("argmin", "int32", 31, {"items": 8}),
            ("reduce_sum", "int8", 7, {"items": 8, "keep": 1}),
            ("reduce_prod", "bfloat16", 3, {"items": 1}),
            ("cumsum", "float16", 7, {"items": 8, "keep": 1}),
            ("cumprod", "float64", 5, {"items": 4}),
        ],
        4,
    ),
)
def test_staged_rows_are_right(name, dtype, k, values):
    w = workload(name, (4096, k), (1,), dtype)
    is_right(ROWS, _staged(w, **values), w, use_cache=False)


@pytest.mark.parametrize("dtype", sample(["float16", "float32", "float64"], 1))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_staged_rows_have_numpys_nan_infinities_and_ties(dtype):
    values = (1.0, -0.0, float("nan"), float("inf"), float("-inf"))
    x = np.array([[a, b, c] for a in values for b in values for c in values], dtype)
    for name in ("argmax", "argmin", "reduce_max", "reduce_min", "reduce_sum", "softmax", "logsumexp"):
        w = workload(name, x.shape, (1,), dtype)
        program = _staged(w, items=2)
        each, problem = candidate(ROWS, program, w), Problem(Case("any", w, dense=16), 7)
        given = problem.inputs["a"].view()
        given[...] = x.reshape(given.shape)
        problem.run(each, build(each.source()), copies="late", order="forward")
        wanted = OPERATORS[name].row(x.astype("float64"), 0.0).astype(problem.out.view().dtype)
        np.testing.assert_allclose(problem.out.view().reshape(wanted.shape), wanted, rtol=2e-3, err_msg=name)


def _staged(problem, **values):
    """Return a Program whose blocks stage 128 rows, two of each thread."""
    rest = {"threads_k": 1, "threads_m": 64, "split_k": 1, "staged": 2, "vector": 1, "items": 1, "keep": 0}
    program = ROWS.starters(problem, lookup("sm_90"))[0].replace(**rest | values)
    space = FamilySpace(ROWS, problem, lookup("sm_90"))
    assert space.legal(space.point(program)[None])[0]
    return program


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
