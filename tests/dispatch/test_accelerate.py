"""`accelerate` routes names of CuPy through the package, on real `cupy.ndarray`s without a GPU, and restores them."""

import copy
import inspect
import pickle
import sys

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.devices import originals
from gensor_kernels.dispatch.accelerated import accelerate
from gensor_kernels.dispatch.api import current
from tests.doubles.kernels import kernels, put, runtime_of, workload

cupy = pytest.importorskip("cupy")

NAMES = ("matmul", "dot", "einsum", "tensordot", "inner", "vdot")


@pytest.fixture
def launched(orin, monkeypatch):
    """A Runtime whose kernels serve every aligned float32 product; the list of its launches. CuPy is the machine's."""
    monkeypatch.setattr(sys.modules[__name__], "cupy", orin.cupy)
    put(monkeypatch, runtime_of(orin.device(), kernels(workload(64, 64, 64))))
    monkeypatch.setattr(accelerate, "_lock", accelerate.threading.Lock())
    return orin.context.launches


def routed():
    """The values of the names that are routed."""
    return [getattr(cupy, name) for name in NAMES] + [cupy.ndarray.dot, cupy.ndarray.__matmul__]


def test_products_of_existing_code_are_ours(launched):
    a, b, out = (cupy.empty((64, 64), np.float32) for _ in range(3))
    before = routed()
    with gensor_kernels.accelerate():
        calls = [
            lambda: cupy.matmul(a, b),
            lambda: a @ b,
            lambda: cupy.matmul(a, b, out=out),
            lambda: cupy.matmul(a, b, out),
            lambda: cupy.dot(a, b),
            lambda: a.dot(b),
            lambda: cupy.einsum("ij,jk->ik", a, b),
            lambda: cupy.tensordot(a, b, axes=1),
            lambda: cupy.inner(a, b.T),
        ]
        for number, call in enumerate(calls, 1):
            assert call().shape == (64, 64) and len(launched) == number, number
        assert cupy.matmul(a, b, out=out) is out and cupy.matmul.__doc__ == before[0].__doc__
    assert all(now is then for now, then in zip(routed(), before, strict=True))
    assert "__matmul__" not in vars(cupy.ndarray)


def test_functions_are_selected_by_names_and_groups(launched):
    """Blocks with other functions may be inside."""

    def replaced():
        return {name for owner, name in originals.kept if owner is cupy}

    with gensor_kernels.accelerate("matmul", "amax"):
        assert replaced() == {"matmul", "max", "amax"} and "__matmul__" in vars(cupy.ndarray)
        with gensor_kernels.accelerate("Products", "cupy.dot"):
            assert replaced() == {*NAMES, "max", "amax"}
        assert replaced() == {"matmul", "max", "amax"} and "dot" not in vars(cupy.ndarray)
        kept = cupy.matmul
    with gensor_kernels.accelerate("reductions"):
        assert {"sum", "amax"} < replaced() and not {*NAMES} & replaced()
        kept(*[cupy.empty((64, 64), np.float32)] * 2)
        assert not launched, "a name that was imported in another block is CuPy's"
    assert not originals.kept and "__matmul__" not in vars(cupy.ndarray)


@pytest.mark.parametrize(
    ("names", "error", "words"),
    [
        (("matmull",), ValueError, "did you mean 'matmul'.*products: matmul, dot"),
        (("log_softmax",), ValueError, "stays CuPy's: where a row has an infinity"),
        (("convolve2d",), ValueError, "stays CuPy's: where a weight is 0"),
        ((cupy.sum,), TypeError, "names of functions, not"),
    ],
)
def test_unknown_functions_are_refused_in_words(names, error, words):
    with pytest.raises(error, match=words), gensor_kernels.accelerate("sum", *names):
        pass
    assert not originals.kept


def test_calls_with_another_meaning_stay_cupys(launched, monkeypatch):
    asked = []
    for name in NAMES:
        monkeypatch.setattr(cupy, name, lambda *arguments, name=name, **keywords: asked.append(name))
    a, wide = cupy.empty((64, 64), np.float32), cupy.empty((64, 64), np.float64)
    small = cupy.empty((64, 64), np.int8)
    with gensor_kernels.accelerate():
        cupy.matmul(a, a, axes=[(0, 1)] * 3)
        cupy.matmul(a, a, out=wide)  # ours would accumulate into the wider type
        cupy.matmul(small, small, out=cupy.empty((64, 64), np.int32))
        cupy.matmul(a, np.ones((64, 64)))
        cupy.dot(a, 2.0)
        cupy.einsum(a, [0, 1], a, [1, 2])
        cupy.einsum("ij,jk", a, a, dtype="float64")
        cupy.tensordot(a, 2.0)
    assert asked == ["matmul"] * 4 + ["dot"] + ["einsum"] * 2 + ["tensordot"] and not launched


def test_calls_that_cupy_serves_reach_its_own_functions(launched, monkeypatch):
    """Every name that is routed, also where one of CuPy's functions calls another."""
    asked = []
    for name in NAMES:
        nested = (lambda: a) if name == "matmul" else (lambda: cupy.matmul(a, a))
        monkeypatch.setattr(cupy, name, lambda *_, name=name, nested=nested, **__: asked.append(name) or nested())
    a, xp = cupy.empty((64, 64), np.float32), current.current_runtime().device.xp
    other, integers = cupy.empty((64, 64), np.complex64), cupy.empty((64, 64), np.int64)
    monkeypatch.setattr(cupy.ndarray, "__matmul__", lambda *_: asked.append("@") or a)
    with gensor_kernels.accelerate():
        for name in NAMES:
            getattr(xp, name)(a, a)
        assert asked == ["matmul", *(each for name in NAMES[1:] for each in (name, "matmul"))]
        asked.clear()
        cupy.matmul(other, other)  # no kernel is stored
        gensor_kernels.matmul(other, other)
        other @ other
        cupy.matmul(integers, integers)  # there never is one
        integers @ integers
    assert asked == ["matmul", "matmul", "@", "matmul", "@"] and not launched and not originals.kept


def test_a_races_library_call_is_cupys_own(launched, monkeypatch):
    """Also while a kernel serves the same call under CuPy's name."""
    monkeypatch.delenv("GENSOR_DETERMINISTIC")
    made, asked, raced = cupy.empty((64, 64), np.float32), [], []
    monkeypatch.setattr(cupy, "matmul", lambda a, b, out=None: asked.append("cupy") or made)

    def sampled(calls):
        before = len(launched), len(asked)
        try:
            calls[0]()
        finally:
            raced.append((len(launched) - before[0], len(asked) - before[1]))

    current.current_runtime().device.sampler = sampled
    with gensor_kernels.accelerate():
        for _ in range(3):
            gensor_kernels.matmul(made, made)
    assert raced == [(0, 1)]


@pytest.mark.parametrize("name", NAMES)
def test_functions_are_pickled_by_name(name):
    with gensor_kernels.accelerate():
        ours = getattr(cupy, name)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(ours, protocol)) is ours
        assert copy.deepcopy(ours) is ours and (ours.__module__, ours.__qualname__) == ("cupy", name)
        assert inspect.signature(ours) == inspect.signature(ours.__wrapped__)
        method = pickle.dumps(cupy.ndarray.dot)
    assert pickle.loads(pickle.dumps(ours)) is getattr(cupy, name) and pickle.loads(method) is cupy.ndarray.dot


def test_blocks_nest_and_end_with_errors(launched, monkeypatch):
    """Errors are CuPy's own."""

    def refuse(a, b):
        raise ValueError(f"in CuPy's words: {b.shape}")

    monkeypatch.setattr(cupy.ndarray, "__matmul__", refuse)
    before = routed()
    a = cupy.empty((64, 64), np.float32)
    with pytest.raises(ValueError, match=r"in CuPy's words: \(32, 64\)"), gensor_kernels.accelerate():
        with gensor_kernels.accelerate():
            a @ a
        a @ a  # the outer block is still open
        assert len(launched) == 2
        a @ a[:32]
    assert all(now is then for now, then in zip(routed(), before, strict=True))


def test_contractions_that_cupy_serves_are_only_looked_up(launched, monkeypatch):
    """Once their kind is known, whatever the function: what serves them is CuPy's own function, with its arguments."""
    asked = []
    for name in NAMES:
        monkeypatch.setattr(cupy, name, lambda *args, name=name, **keywords: asked.append((name, args, keywords)) or a)
    a, v = cupy.empty((64, 64), np.complex64), cupy.empty(64, np.complex64)  # of which no kernel is stored
    calls = [
        ("dot", (a, v), {}), ("einsum", ("ij,jk", a, a), {}), ("inner", (a, v), {}), ("vdot", (v, v), {}),
        ("tensordot", (a, a), {}), ("tensordot", (a, a), {"axes": ([1], [0])}), ("tensordot", (a, v, 1), {}),
        ("einsum", ("ij->ji", a), {}),
    ]  # fmt: skip
    with gensor_kernels.accelerate():
        for name, args, keywords in calls * 2:
            getattr(cupy, name)(*args, **keywords)
        asked.clear()
        monkeypatch.setattr(type(current.current_runtime()), "first", lambda *_: pytest.fail("it is planned again"))
        for name, args, keywords in calls:
            getattr(cupy, name)(*args, **keywords)
            assert asked.pop() == (name, args, keywords) and not asked
    assert not launched
