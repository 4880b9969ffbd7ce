"""The gemv family beside its contract (test_contract.py): its lattice, its potential, skinny public calls."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels import dot, einsum, explain, linear, matmul
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.windows.conv import workload as conv
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace, Space
from gensor_tuner.build.pool import candidate
from gensor_tuner.search.graph import Graph
from gensor_tuner.search.walk import walk
from gensor_tuner.verify.verify import verify
from tests.dispatch.einsum_cases import agrees

from .workloads import space

GEMV = FAMILIES["gemv"]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_aligned_half_types_have_no_bank_conflicts(index):
    lattice = space("gemv", index)
    seconds = {p: lattice.potential(lattice.point(p)[None])[0] for p in GEMV.starters(lattice.workload, lattice.arch)}
    best = min(seconds, key=lambda program: seconds[program])
    assert verify(candidate(GEMV, best, lattice.workload), lattice.workload).counters["bank_conflicts"] == 0


@pytest.mark.parametrize("index", [0, 5, 8])
def test_reachability_equals_enumeration(index):
    lattice = space("gemv", index)
    kept = {
        "threads_k": (1, 8, 32, 64), "threads_l": (1, 4, 32), "small": (1, 2, 16), "split_k": (1, 3),
        "items": (1, 4), "rows": (1, 4), "min_blocks": (0, 2),
    }  # fmt: skip
    small = FamilySpace(GEMV, lattice.workload, lattice.arch, restrict=kept if index != 8 else {**kept, "rows": (1,)})
    graph = Graph(small)
    points = graph.decode(np.arange(graph.size))
    legal = np.sort(graph.encode(points[small.legal(points)]))
    assert legal.size > 100
    assert np.array_equal(graph.reachable(graph.decode(legal[-1:])), legal)


@pytest.mark.parametrize(
    ("arch", "sizes", "dtype", "trans_b", "most"),
    [
        ("sm_87", (1, 1280, 1280), "float32", False, 1.25),
        ("sm_87", (1, 4097, 4097), "float16", False, 1.25),
        ("sm_90", (1, 4352, 4352), "float32", False, 1.3),
        ("sm_90", (1, 1280, 1280), "float32", True, 1.1),
        ("sm_90", (4, 8192, 2048), "float32", True, 1.3),
        ("sm_90", (1, 1, 1 << 20), "float32", False, 2.0),
    ],
)
def test_walks_get_near_the_bound_with_gemv(arch, sizes, dtype, trans_b, most):
    w, part = workload(*sizes, dtype=dtype, trans_b=trans_b), lookup(arch)
    program, seconds = walk(Space(w, part), seed=0, chains=32, steps=100, keep=1).best[0]
    assert program.family == "gemv"
    assert seconds * 1e6 <= most * bound_us(w, part)


def test_tensor_cores_keep_what_they_do_better():
    w, part = workload(16, 14336, 4096, trans_b=True), lookup("sm_90")
    served = Space(w, part)
    names = {each.family.name for each in served.families}
    assert names == {"contraction_mma", "contraction_simt", "contraction_wgmma", "gemv"}
    program, seconds = walk(served, seed=0, chains=32, steps=60, keep=1).best[0]
    assert program.family in ("contraction_mma", "contraction_wgmma")
    assert seconds * 1e6 <= 1.3 * bound_us(w, part)


def test_who_serves_what():
    arch = lookup("sm_87")
    assert "neither m nor n" in str(GEMV.serves(workload(17, 17, 64), arch))
    window = conv(n=1, h=8, w=8, c=8, k_out=8, r=3, s=3)
    assert "window" in str(GEMV.serves(window, arch))
    assert GEMV.serves(workload(16, 17, 64), arch) is None
    forms = {c.values for c in GEMV.coordinates(workload(4, 4, 64, trans_b=True), arch) if c.name == "form"}
    assert forms == {(0, 2)}


@pytest.fixture(params=["sm_87"])
def emulated(request, no_databases):
    with gensor_kernels.emulated(request.param):
        yield


def drawn(shape, dtype="float32"):
    rng = np.random.default_rng(len(shape))
    return rng.integers(-128, 128, shape).astype(dtype) if dtype == "int8" else rng.standard_normal(shape).astype(dtype)


#: subscripts, shapes, dtype
PRODUCTS = [
    ("k,kn->n", (300,), (300, 67), "float32"),
    ("mk,k->m", (67, 300), (300,), "float16"),
    ("k,k->", (5000,), (5000,), "float64"),
    ("mk,nk->mn", (5, 333), (67, 333), "float16"),
    ("mk,kn->mn", (320, 96), (96, 3), "float32"),
    ("bhd,bhjd->bhj", (2, 3, 64), (2, 3, 50, 64), "float16"),
    ("bhj,bhjd->bhd", (2, 3, 50), (2, 3, 50, 64), "float32"),
]


@pytest.mark.parametrize(("text", "first", "second", "dtype"), PRODUCTS, ids=[each[0] for each in PRODUCTS])
def test_skinny_products_agree_with_numpy(text, first, second, dtype, emulated):
    a, b = drawn(first, dtype), drawn(second, dtype)
    assert explain(einsum, text, a, b).family == "gemv"
    assert agrees(einsum(text, a, b), text, (a, b)).ok


@pytest.mark.parametrize("layout", ["negative", "stepped", "broadcast", "transposed"])
def test_any_strides(layout, emulated):
    x, w = drawn((3, 130)), drawn((130, 90))
    views = {
        "negative": (x[::-1, ::-1], w[::-1, ::-1]),
        "stepped": (x[:, ::2], w[::2, ::3]),
        "broadcast": (np.broadcast_to(x[:, :1], x.shape), np.broadcast_to(w[0], w.shape)),
        "transposed": (np.asfortranarray(x), np.asfortranarray(w)),
    }
    a, b = views[layout]
    assert explain(matmul, a, b).family == "gemv"
    assert agrees(matmul(a, b), "mk,kn->mn", (a, b)).ok
    out = np.zeros((90, 3), "float32").T[:, : b.shape[1]]
    assert matmul(a, b, out=out) is out
    assert agrees(out, "mk,kn->mn", (a, b)).ok


def test_int8_sums_and_epilogues(emulated):
    x, w = drawn((2, 200), "int8"), drawn((200, 33), "int8")
    exact = x.astype(np.int64) @ w.astype(np.int64)
    assert np.array_equal(matmul(x, w, dtype="int32"), exact)
    bias = np.arange(33, dtype="int32")
    assert np.array_equal(matmul(x, w, dtype="int32", bias=bias, activation="relu"), np.maximum(exact + bias, 0))
    y, weights, shift = drawn((4, 150)), drawn((70, 150)), drawn((70,))
    assert explain(linear, y, weights, shift, "relu").family == "gemv"
    wanted = np.maximum(y.astype(np.float64) @ weights.T.astype(np.float64) + shift, 0)
    assert np.allclose(linear(y, weights, shift, "relu"), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("dtype", "shape"), [("complex64", (3, 2, 96)), ("complex128", (1, 70))])
def test_complex_products_conjugate_as_they_read(dtype, shape, emulated):
    x, w = (drawn(each) + 1j * drawn(each[::-1]).T for each in (shape, (*shape[:-2], shape[-1], 50)))
    x, w = x.astype(dtype), w.astype(dtype)
    assert explain(einsum, "...mk,...kn->...mn", x, w, conjugate=1).family == "gemv"
    found = einsum("...mk,...kn->...mn", x, w, conjugate=1)
    exact = np.matmul(x.astype("complex128"), w.astype("complex128").conj())
    bound = np.matmul(abs(x), abs(w)) * 2 * shape[-1] * np.finfo(dtype).eps
    assert (abs(found - exact) <= bound).all()


def test_empty_sums_nan_and_infinity(emulated):
    assert np.array_equal(matmul(np.zeros((2, 0), "float32"), np.zeros((0, 30), "float32")), np.zeros((2, 30)))
    x, w = np.ones((1, 50), "float32"), np.ones((50, 40), "float32")
    x[0, 7], w[3, 5] = np.inf, np.nan
    found = matmul(x, w)
    assert np.isnan(found[0, 5]) and np.isinf(np.delete(found, 5)).all()
    assert np.isinf(dot(x[0], w[:, 0]))
