"""The reductions and maps of rows that `accelerate` reaches, on real `cupy.ndarray`s without a GPU."""

import importlib
import itertools
import pickle
import sys
from functools import partial

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.build import nvrtc
from gensor_kernels.devices import originals, sampling
from gensor_kernels.dispatch.accelerated import accelerate

cupy = pytest.importorskip("cupy")
from tests.doubles.kernels import put, runtime_of  # noqa: E402
from tests.doubles.strict.stored import cubin  # noqa: E402

SPECIAL = pytest.importorskip("cupyx.scipy.special")
#: Functions of an array and `axis` by name; those of the first line are also methods of arrays.
METHODS = ("sum", "mean", "prod", "max", "min", "argmax", "argmin", "var", "std")
DIRECT = (*METHODS, "amax", "amin", "norm", "softmax", "logsumexp")
#: Those of the second line serve on a copy, which CuPy's kernels make.
FUNCTIONS = (*DIRECT, "nansum", "nanmean", "nanmax", "nanmin")
AXES = (None, 0, -1, (0, 2))


def owner_of(name):
    """The module that has a function."""
    return cupy.linalg if name == "norm" else SPECIAL if name in ("softmax", "logsumexp") else cupy


@pytest.fixture
def machine(orin, monkeypatch):
    """A machine with a GPU, whose kernels have no code. CuPy is the machine's."""
    monkeypatch.setattr(sys.modules[__name__], "cupy", orin.cupy)
    monkeypatch.setattr(nvrtc, "compile_cubin", lambda source, target: nvrtc.Binary(target, cubin(target, source)))
    monkeypatch.setattr(accelerate, "_lock", accelerate.threading.RLock())
    return orin


@pytest.fixture
def launched(machine, monkeypatch):
    """A Runtime that serves by default Programs and refuses to fall back; its launches."""
    device = machine.device()
    device.emulated = True
    put(monkeypatch, runtime_of(device))
    return machine.context.launches


@pytest.fixture
def asked(machine, monkeypatch):
    """A Runtime without kernels; the calls that reach CuPy's functions."""
    put(monkeypatch, runtime_of(machine.device()))
    return spied(monkeypatch, cupy.empty((2, 3, 4), np.float32))


def spied(monkeypatch, result):
    """The names of CuPy's own functions and methods as they are called, each of which returns `result`."""
    calls = []
    for name in FUNCTIONS:
        for owner in (owner_of(name), *([cupy.ndarray] if name in METHODS else ())):
            is_method = "ndarray." if owner is cupy.ndarray else ""
            spy = lambda *args, name=is_method + name, **keywords: calls.append((name, keywords)) or result  # noqa: E731
            monkeypatch.setattr(owner, name, spy)
    return calls


@pytest.mark.parametrize("name", DIRECT)
def test_functions_are_ours_with_the_shapes_of_numpy(launched, name):
    x = cupy.empty((2, 3, 4), np.float32)
    with gensor_kernels.accelerate():
        for axis, keepdims in itertools.product(AXES, (False, True)):
            if axis == (0, 2) and name in ("argmax", "argmin", "softmax"):  # CuPy serves these
                continue
            given = {"axis": axis} | ({} if name == "softmax" else {"keepdims": keepdims})
            wanted = numpy_result(name, axis, keepdims)
            calls = [partial(getattr(owner_of(name), name), x), *([getattr(x, name)] if name in METHODS else ())]
            for call in calls:
                launched.clear()
                found = call(**given)
                assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype) and len(launched) == 1, given


def numpy_result(name, axis, keepdims):
    """An array with the shape and dtype of NumPy's result, or SciPy's."""
    x = np.ones((2, 3, 4), "float32")
    if name == "softmax":
        return x
    return getattr(np, name if name in dir(np) else "sum")(x, axis=axis, keepdims=keepdims)


@pytest.mark.parametrize("name", FUNCTIONS)
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


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool", "complex64"]
)
def test_results_have_cupys_dtypes(launched, monkeypatch, dtype):
    """Where kernels serve a dtype; CuPy's own functions get the others."""
    calls = spied(monkeypatch, None)
    x = cupy.empty((3, 4), dtype)
    ours = {
        "float16": {"sum", "mean", "prod", "max", "min", "argmax", "argmin", "amax", "amin", "softmax", "logsumexp"},
        "float32": set(DIRECT),
        "float64": set(DIRECT),
    } | {each: {"sum", "max", "min", "argmax", "argmin", "amax", "amin"} for each in ("int8", "int32")}
    positions, sums = ("argmax", "argmin"), {"int8": "int64", "int32": "int64"}
    with gensor_kernels.accelerate():
        for name in DIRECT:
            found = getattr(owner_of(name), name)(x, axis=1)
            assert (found is not None) == (name in ours.get(dtype, ())), name
            if found is not None:
                wanted = "int64" if name in positions else sums.get(dtype, dtype) if name == "sum" else dtype
                assert found.dtype == wanted, name
    assert {name for name, _ in calls} == set(DIRECT) - ours.get(dtype, set())


def test_kernels_without_nan_are_looked_for_where_cupy_adds_up_as_they_do(asked):
    """CuPy's `nanmean` of float16 adds up in float16, and integers have no NaN."""
    before = gensor_kernels.counters()["fallbacks"]
    with gensor_kernels.accelerate():
        for dtype, looked in (("float16", 3), ("float32", 4), ("float64", 4), ("int32", 0), ("complex64", 0)):
            for name in ("nansum", "nanmean", "nanmax", "nanmin"):
                getattr(cupy, name)(cupy.empty((3, 4), dtype), axis=1)
            assert gensor_kernels.counters()["fallbacks"] - before == looked, dtype
            before += looked


CHANGED = [
    ("sum", (), {"axis": [0]}), ("sum", (), {"axis": ()}), ("sum", (), {"axis": 2}), ("sum", (), {"axis": (0, 0)}),
    ("sum", (), {"keepdims": 1}), ("sum", (), {"dtype": "int32"}), ("sum", (0,), {"axis": 0}),
    ("sum", (), {"where": 1}), ("sum", (0, None, None, False, 1), {}), ("mean", (), {"dtype": "float64"}),
    ("argmax", (), {"axis": (0, 1)}), ("argmax", (), {"dtype": "int32"}), ("var", (), {"ddof": 12}),
    ("var", (), {"ddof": 1.0}), ("std", (), {"ddof": -1}), ("norm", (1,), {}), ("norm", ("nuc",), {}),
    ("norm", (2,), {"axis": (0, 1)}), ("norm", (), {"axis": "0"}), ("logsumexp", (), {"return_sign": True}),
    ("logsumexp", (0, 2.0), {}), ("softmax", (), {"axis": 5}),
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
    before = gensor_kernels.counters()["misses"]
    with gensor_kernels.accelerate():
        fill._fills(3)
    assert [name for name, _ in asked] == ["ndarray.sum"] * 3 and gensor_kernels.counters()["misses"] == before


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
        assert len(launched) == 6 and not calls
        for wrong in (cupy.empty(3, "d"), cupy.empty(4, "f"), np.empty(3, "f")):
            assert cupy.sum(x, axis=1, out=wrong) == "CuPy's"
    assert len(calls) == 3 and len(launched) == 6


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
