"""`accelerate` routes names of CuPy through the package, on real `cupy.ndarray`s without a GPU, and restores them.

Shapes and dtypes of results are NumPy's.
"""

import copy
import importlib
import inspect
import itertools
import pickle
import sys
import threading
from functools import partial

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.build import nvrtc
from gensor_kernels.devices import originals, sampling
from gensor_kernels.dispatch.accelerated import accelerate
from gensor_kernels.dispatch.api import current

cupy = pytest.importorskip("cupy")
from tests.doubles.kernels import kernels, put, runtime_of, workload  # noqa: E402
from tests.doubles.strict.stored import cubin  # noqa: E402

SPECIAL = pytest.importorskip("cupyx.scipy.special")
PRODUCTS = ("matmul", "dot", "einsum", "tensordot", "inner", "vdot")
#: Functions of an array and `axis` that are also methods of arrays.
SCANS = ("cumsum", "cumprod")
METHODS = ("sum", "mean", "prod", "max", "min", "argmax", "argmin", "var", "std", *SCANS)
ROWS = (*METHODS, "amax", "amin", "norm", "softmax", "logsumexp")
#: Functions that serve on a copy, which CuPy's kernels make.
COPIED = ("nansum", "nanmean", "nanmax", "nanmin")


@pytest.fixture
def machine(orin, monkeypatch):
    """A machine with a GPU, whose kernels have no code. CuPy is the machine's."""
    monkeypatch.setattr(sys.modules[__name__], "cupy", orin.cupy)
    monkeypatch.setattr(nvrtc, "compile_cubin", lambda source, target: nvrtc.Binary(target, cubin(target, source)))
    monkeypatch.setattr(accelerate, "_lock", threading.RLock())
    return orin


@pytest.fixture
def stocked(machine, monkeypatch):
    """The launches of a Runtime whose kernels serve every aligned float32 product."""
    put(monkeypatch, runtime_of(machine.device(), kernels(workload(64, 64, 64))))
    return machine.context.launches


@pytest.fixture
def launched(machine, monkeypatch):
    """The launches of a Runtime that serves by default Programs and refuses to fall back."""
    device = machine.device()
    device.emulated = True
    put(monkeypatch, runtime_of(device))
    return machine.context.launches


@pytest.fixture
def asked(machine, monkeypatch):
    """A Runtime without kernels; the calls that reach CuPy's functions."""
    put(monkeypatch, runtime_of(machine.device()))
    return spied(monkeypatch, cupy.empty((2, 3, 4), np.float32))


def owner_of(name):
    """The module that has a function."""
    return cupy.linalg if name == "norm" else SPECIAL if name in ("softmax", "logsumexp") else cupy


def spied(monkeypatch, result):
    """(name, keywords) of CuPy's own functions and methods of rows as they are called; each returns `result`."""
    calls = []
    for name in (*ROWS, *COPIED):
        for owner in (owner_of(name), *([cupy.ndarray] if name in METHODS else ())):
            is_method = "ndarray." if owner is cupy.ndarray else ""
            spy = lambda *args, name=is_method + name, **keywords: calls.append((name, keywords)) or result  # noqa: E731
            monkeypatch.setattr(owner, name, spy)
    return calls


def routed():
    """The values of the names of products that are routed."""
    return [getattr(cupy, name) for name in PRODUCTS] + [cupy.ndarray.dot, cupy.ndarray.__matmul__]


# ---- products


def test_products_of_existing_code_are_ours(stocked):
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
            assert call().shape == (64, 64) and len(stocked) == number, number
        assert cupy.matmul(a, b, out=out) is out and cupy.matmul.__doc__ == before[0].__doc__
    assert all(now is then for now, then in zip(routed(), before, strict=True))
    assert "__matmul__" not in vars(cupy.ndarray)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "stepped", "reversed"])
@pytest.mark.parametrize(
    ("call", "shapes"),
    [
        (lambda xp, a, b: xp.matmul(a, b), ((2, 1, 3, 2), (1, 4, 2, 5))),
        (lambda xp, a, b: xp.matmul(a, b), ((2,), (2, 4))),
        (lambda xp, a, b: xp.dot(a, b), ((2, 3, 4), (3, 4, 2))),
        (lambda xp, a, b: xp.tensordot(a, b, ([1, 2], [2, 1])), ((2, 3, 4), (5, 4, 3))),
        (lambda xp, a, b: xp.einsum("bhij,bjhd->bihd", a, b), ((2, 3, 6, 5), (2, 5, 3, 4))),
    ],
)
def test_arrays_of_any_layout(launched, layout, call, shapes):
    def laid_out(xp, shape):
        if layout == "transposed":
            return xp.empty(shape[::-1], np.float32).T
        step = {"contiguous": 1, "stepped": 2, "reversed": -1}[layout]
        return xp.empty([extent * abs(step) for extent in shape], np.float32)[(slice(None, None, step),) * len(shape)]

    a, b = (laid_out(cupy, shape) for shape in shapes)
    explained = {name: partial(gensor_kernels.explain, getattr(gensor_kernels, name)) for name in PRODUCTS}
    why = call(type("Explain", (), {name: staticmethod(each) for name, each in explained.items()}), a, b)
    assert why.tier == 3 and why.kernel is not None
    if why.staged is None:  # a copy takes a GPU
        with gensor_kernels.accelerate():
            found, wanted = call(cupy, a, b), call(np, *(np.zeros(shape, np.float32) for shape in shapes))
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype) and launched


def test_functions_are_selected_by_names_and_groups(stocked):
    """Blocks with other functions may be inside."""

    def replaced():
        return {name for owner, name in originals.kept if owner is cupy}

    with gensor_kernels.accelerate("matmul", "amax"):
        assert replaced() == {"matmul", "max", "amax"} and "__matmul__" in vars(cupy.ndarray)
        with gensor_kernels.accelerate("Products", "cupy.dot"):
            assert replaced() == {*PRODUCTS, "max", "amax"}
        assert replaced() == {"matmul", "max", "amax"} and "dot" not in vars(cupy.ndarray)
        kept = cupy.matmul
    with gensor_kernels.accelerate("reductions"):
        assert {"sum", "amax"} < replaced() and not {*PRODUCTS} & replaced()
        kept(*[cupy.empty((64, 64), np.float32)] * 2)
        assert not stocked, "a name that was imported in another block is CuPy's"
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


def test_calls_with_another_meaning_stay_cupys(stocked, monkeypatch):
    reached = []
    for name in PRODUCTS:
        monkeypatch.setattr(cupy, name, lambda *arguments, name=name, **keywords: reached.append(name))
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
    assert reached == ["matmul"] * 4 + ["dot"] + ["einsum"] * 2 + ["tensordot"] and not stocked


def test_calls_that_cupy_serves_reach_its_own_functions(stocked, monkeypatch):
    """Every name that is routed, also where one of CuPy's functions calls another."""
    reached = []
    for name in PRODUCTS:
        nested = (lambda: a) if name == "matmul" else (lambda: cupy.matmul(a, a))
        monkeypatch.setattr(cupy, name, lambda *_, name=name, nested=nested, **__: reached.append(name) or nested())
    a, xp = cupy.empty((64, 64), np.float32), current.current_runtime().device.xp
    other, integers = cupy.empty((64, 64), np.complex64), cupy.empty((64, 64), np.int64)
    monkeypatch.setattr(cupy.ndarray, "__matmul__", lambda *_: reached.append("@") or a)
    with gensor_kernels.accelerate():
        for name in PRODUCTS:
            getattr(xp, name)(a, a)
        assert reached == ["matmul", *(each for name in PRODUCTS[1:] for each in (name, "matmul"))]
        reached.clear()
        cupy.matmul(other, other)  # no kernel is stored
        gensor_kernels.matmul(other, other)
        other @ other
        cupy.matmul(integers, integers)  # there never is one
        integers @ integers
    assert reached == ["matmul", "matmul", "@", "matmul", "@"] and not stocked and not originals.kept


def test_a_races_library_call_is_cupys_own(stocked, monkeypatch):
    """Also while a kernel serves the same call under CuPy's name."""
    monkeypatch.delenv("GENSOR_DETERMINISTIC")
    made, reached, raced = cupy.empty((64, 64), np.float32), [], []
    monkeypatch.setattr(cupy, "matmul", lambda a, b, out=None: reached.append("cupy") or made)

    def sampled(calls):
        before = len(stocked), len(reached)
        try:
            calls[0]()
        finally:
            raced.append((len(stocked) - before[0], len(reached) - before[1]))

    current.current_runtime().device.sampler = sampled
    with gensor_kernels.accelerate():
        for _ in range(3):
            gensor_kernels.matmul(made, made)
    assert raced == [(0, 1)]


@pytest.mark.parametrize("name", PRODUCTS)
def test_functions_are_pickled_by_name(name):
    with gensor_kernels.accelerate():
        ours = getattr(cupy, name)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(ours, protocol)) is ours
        assert copy.deepcopy(ours) is ours and (ours.__module__, ours.__qualname__) == ("cupy", name)
        assert inspect.signature(ours) == inspect.signature(ours.__wrapped__)
        method = pickle.dumps(cupy.ndarray.dot)
    assert pickle.loads(pickle.dumps(ours)) is getattr(cupy, name) and pickle.loads(method) is cupy.ndarray.dot


def test_blocks_nest_and_end_with_errors(stocked, monkeypatch):
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
        assert len(stocked) == 2
        a @ a[:32]
    assert all(now is then for now, then in zip(routed(), before, strict=True))


def test_contractions_that_cupy_serves_are_only_looked_up(stocked, monkeypatch):
    """Once their kind is known, whatever the function: what serves them is CuPy's own function, with its arguments."""
    reached = []
    for name in PRODUCTS:
        monkeypatch.setattr(
            cupy, name, lambda *args, name=name, **keywords: reached.append((name, args, keywords)) or a
        )
    a, v = cupy.empty((64, 64), np.complex64), cupy.empty(64, np.complex64)  # of which no kernel is stored
    calls = [
        ("dot", (a, v), {}), ("einsum", ("ij,jk", a, a), {}), ("inner", (a, v), {}), ("vdot", (v, v), {}),
        ("tensordot", (a, a), {}), ("tensordot", (a, a), {"axes": ([1], [0])}), ("tensordot", (a, v, 1), {}),
        ("einsum", ("ij->ji", a), {}),
    ]  # fmt: skip
    with gensor_kernels.accelerate():
        for name, args, keywords in calls * 2:
            getattr(cupy, name)(*args, **keywords)
        reached.clear()
        monkeypatch.setattr(type(current.current_runtime()), "first", lambda *_: pytest.fail("it is planned again"))
        for name, args, keywords in calls:
            getattr(cupy, name)(*args, **keywords)
            assert reached.pop() == (name, args, keywords) and not reached
    assert not stocked


# ---- reductions and maps of rows


@pytest.mark.parametrize("name", ROWS)
def test_functions_are_ours_with_the_shapes_of_numpy(launched, name):
    x, zeros = cupy.empty((2, 3, 4), np.float32), np.zeros((2, 3, 4), np.float32)
    with gensor_kernels.accelerate():
        for axis, keepdims in itertools.product((None, 0, -1, (0, 2)), (False, True)):
            if axis == (0, 2) and name in ("argmax", "argmin", "softmax", *SCANS):  # CuPy serves these
                continue
            given = {"axis": axis} | ({} if name in ("softmax", *SCANS) else {"keepdims": keepdims})
            wanted = zeros if name == "softmax" else getattr(np, name if name in dir(np) else "sum")(zeros, **given)
            calls = [partial(getattr(owner_of(name), name), x), *([getattr(x, name)] if name in METHODS else ())]
            for call in calls:
                launched.clear()
                found = call(**given)
                assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype) and len(launched) == 1, given


@pytest.mark.parametrize("name", (*ROWS, *COPIED))
def test_calls_without_a_kernel_reach_cupys_own_function_once(asked, name):
    """The first call of a kind by the way of ours, later ones as if nothing were replaced; also of methods."""
    x = cupy.empty((2, 3, 4), np.float32)
    first = {"std": "var", "amax": "max", "amin": "min"}.get(name, name)
    before = gensor_kernels.counters()["fallbacks"]
    with gensor_kernels.accelerate():
        function = partial(getattr(owner_of(name), name), x)
        ways = {first: function, name: function} | ({f"ndarray.{name}": getattr(x, name)} if name in METHODS else {})
        for called, call in ways.items():
            call(axis=1)
            assert [each for each, _ in asked] == [called] and asked[0][1]["axis"] == 1
            asked.clear()
    assert not originals.kept and gensor_kernels.counters()["fallbacks"] - before == len(ways)


def test_kernels_without_nan_are_looked_for_where_cupy_adds_up_as_they_do(asked):
    """CuPy's `nanmean` of float16 adds up in float16, and integers have no NaN."""
    before = gensor_kernels.counters()["fallbacks"]
    with gensor_kernels.accelerate():
        for dtype, looked in (("float16", 3), ("float32", 4), ("float64", 4), ("int32", 0), ("complex64", 0)):
            for name in COPIED:
                getattr(cupy, name)(cupy.empty((3, 4), dtype), axis=1)
            assert gensor_kernels.counters()["fallbacks"] - before == looked, dtype
            before += looked


EXACT = {"sum", "cumsum", "max", "min", "argmax", "argmin", "amax", "amin"}
#: The functions of rows that kernels serve, by the dtype of the array.
SERVED = {
    "float16": EXACT | {"mean", "prod", "cumprod", "softmax", "logsumexp"},
    **{key: {*ROWS} for key in ("float32", "float64")},
    **dict.fromkeys(("int8", "int32"), EXACT),
    **{key: {"cumsum"} for key in ("int64", "bool")},
    **{key: set() for key in ("uint8", "complex64")},
}


@pytest.mark.parametrize("dtype", SERVED)
def test_results_have_cupys_dtypes(launched, monkeypatch, dtype):
    """Where kernels serve a dtype; CuPy's own functions get the others."""
    calls = spied(monkeypatch, None)
    x = cupy.empty((3, 4), dtype)
    with gensor_kernels.accelerate():
        found = {name: getattr(owner_of(name), name)(x, axis=1) for name in ROWS}
    assert {name for name, result in found.items() if result is not None} == SERVED[dtype]
    for name in SERVED[dtype]:
        is_wider = name.startswith("arg") or (name in ("sum", "cumsum") and dtype.startswith(("int", "bool")))
        assert found[name].dtype == ("int64" if is_wider else dtype), name
    assert {name for name, _ in calls} == set(ROWS) - SERVED[dtype]


CHANGED = [
    ("sum", (), {"axis": [0]}), ("sum", (), {"axis": ()}), ("sum", (), {"axis": 2}), ("sum", (), {"axis": (0, 0)}),
    ("sum", (), {"keepdims": 1}), ("sum", (), {"dtype": "int32"}), ("sum", (0,), {"axis": 0}),
    ("sum", (), {"where": 1}), ("sum", (0, None, None, False, 1), {}), ("mean", (), {"dtype": "float64"}),
    ("argmax", (), {"axis": (0, 1)}), ("argmax", (), {"dtype": "int32"}), ("var", (), {"ddof": 12}),
    ("var", (), {"ddof": 1.0}), ("std", (), {"ddof": -1}), ("norm", (1,), {}), ("norm", ("nuc",), {}),
    ("norm", (2,), {"axis": (0, 1)}), ("norm", (), {"axis": "0"}), ("logsumexp", (), {"return_sign": True}),
    ("logsumexp", (0, 2.0), {}), ("softmax", (), {"axis": 5}), ("cumsum", (), {"axis": 2}),
    ("cumsum", (), {"axis": (0,)}), ("cumsum", (), {"dtype": "float64"}), ("cumprod", (0, None, None, 1), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "more", "keywords"), CHANGED)
def test_other_arguments_go_to_cupy_unchanged(launched, monkeypatch, name, more, keywords):
    """Functions and methods; CuPy raises the errors."""
    calls = spied(monkeypatch, "CuPy's")
    x = cupy.empty((3, 4), np.float32)
    with gensor_kernels.accelerate():
        assert getattr(owner_of(name), name)(x, *more, **keywords) == "CuPy's" and calls == [(name, keywords)]
        if name in METHODS:
            assert getattr(x, name)(*more, **keywords) == "CuPy's" and calls[1:] == [(f"ndarray.{name}", keywords)]
    assert not launched


def test_samples_of_a_race_are_taken_after_cupys_own_sums(asked):
    """A sum that is ours would begin a race within the race."""
    fill = object.__new__(sampling.Fill)
    fill.array = cupy.empty((2, 3), np.float32)
    with gensor_kernels.accelerate():
        fill._fills(3)
    assert [name for name, _ in asked] == ["ndarray.sum"] * 3


def test_other_arrays_go_to_cupy_unchanged(launched, monkeypatch):
    """Arrays without elements or axes, of another library, and for softmax in another order, which CuPy keeps."""
    calls = spied(monkeypatch, "CuPy's")
    with gensor_kernels.accelerate():
        for x in (cupy.empty((0, 4), "f"), cupy.empty((), "f"), np.ones((3, 4), "f"), [1.0]):
            assert cupy.sum(x) == "CuPy's" and cupy.max(x) == "CuPy's"
        assert SPECIAL.softmax(cupy.empty((4, 3), "f").T, axis=0) == "CuPy's"
        assert cupy.sum(a=cupy.empty((4, 3), "f")) == "CuPy's"
    assert len(calls) == 10 and not launched


def test_results_are_written_to_out(launched, monkeypatch):
    """An `out` of the result's dtype is ours; into another CuPy converts."""
    calls = spied(monkeypatch, "CuPy's")
    x, out, positions = cupy.empty((3, 4), "f"), cupy.empty(3, "f"), cupy.empty(3, "q")
    with gensor_kernels.accelerate():
        for number, call in enumerate((
            lambda: cupy.sum(x, 1, None, out), lambda: x.sum(1, out=out), lambda: cupy.max(x, 1, out),
            lambda: x.mean(1, np.float32, out),
        ), 1):  # fmt: skip
            assert call() is out and len(launched) == number
        assert cupy.argmax(x, 1, None, positions) is positions and x.argmax(1, positions) is positions
        whole = cupy.empty(12, "f")
        assert x.cumsum(out=whole) is whole and cupy.cumprod(x, 0, None, x) is x and len(launched) == 8
        assert not calls
        for wrong in (cupy.empty(3, "d"), cupy.empty(4, "f"), np.empty(3, "f")):
            assert cupy.sum(x, axis=1, out=wrong) == "CuPy's" and cupy.cumsum(x, out=wrong) == "CuPy's"
    assert len(calls) == 6 and len(launched) == 8


def test_functions_of_scipy_are_replaced_once_they_are_imported(monkeypatch):
    """Not before: their module takes long to import."""
    own = SPECIAL.softmax
    with gensor_kernels.accelerate():
        assert SPECIAL.softmax is not own
    monkeypatch.delitem(sys.modules, "cupyx.scipy.special")
    with gensor_kernels.accelerate("softmax"):
        assert "cupyx.scipy.special" not in sys.modules
        later = importlib.import_module("cupyx.scipy.special")
        replaced = later.softmax
        assert replaced is not own and replaced.__wrapped__ is own and pickle.loads(pickle.dumps(replaced)) is replaced
        assert later.logsumexp is SPECIAL.logsumexp
    assert later.softmax is own and not [each for each in sys.meta_path if isinstance(each, accelerate._Later)]


# ---- reports


def test_a_report_has_what_was_reached_and_who_served_it(stocked, monkeypatch):
    a, whole = cupy.empty((64, 64), np.float32), cupy.empty((64, 64), np.int64)
    for name in ("sum", "dot"):
        monkeypatch.setattr(cupy, name, lambda *args, **keywords: a)
    with gensor_kernels.accelerate("matmul", "sum", "dot", report=True) as report:
        for _ in range(3):
            a @ a
        cupy.matmul(a, a)
        for _ in range(2):
            cupy.sum(a, axis=0)  # no kernel is stored
        cupy.sum(whole)
        cupy.dot(a, a[:10])  # does not fit: CuPy raises its own error, or not
        gensor_kernels.matmul(a, a)  # not a call of CuPy's
        cupy.einsum  # noqa: B018 - is not reached
    assert report.functions == {
        "ndarray.__matmul__": (3, 0, 0), "cupy.sum": (0, 2, 1), "cupy.matmul": (1, 0, 0), "cupy.dot": (0, 0, 1)
    }  # fmt: skip
    assert len(stocked) == 5
    lines = str(report).splitlines()
    assert lines[1].split() == ["function", "calls", "by", "kernels", "by", "CuPy", "unchanged"]
    assert next(line.split() for line in lines if line.startswith("cupy.sum ")) == ["cupy.sum", "3", "0", "2", "1"]
    assert any("matmul fp32 k=64 m=64 n=64" in line and "predicted" in line for line in lines)
    assert any("reduce_sum fp32" in line and "CuPy" in line and "not known" in line for line in lines)
    assert lines[-1].startswith("4 calls by kernels, predicted: ") and " in place of " in lines[-1]
    with gensor_kernels.accelerate():
        a @ a
    assert report.functions["ndarray.__matmul__"] == (3, 0, 0) and accelerate.counting is None
    with gensor_kernels.accelerate(report=True) as report:
        gensor_kernels.matmul(a, a)
    assert str(report) == "accelerate: no call reached gensor_kernels" and report.functions == {}
