"""Products beside an array library: NumPy in CuPy's place with a recorder in place of kernels, and CuPy's own arrays
over a fake driver.
"""

import struct

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels import dot, einsum, inner, outer, tensordot, vdot
from gensor_kernels.dispatch.functions.contraction import Gathered
from gensor_kernels.dispatch.selection import library
from gensor_kernels.errors import BuildError
from tests.doubles.kernels import aligned, kernels, put, runtime_of, starters, workload


@pytest.fixture
def beside(monkeypatch):
    """A Runtime of NumPy arrays that is no emulator, with kernels for aligned float32 products."""
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    stored = {k.digest: k for turned in (False, True) for k in starters(workload(trans_b=turned))}
    return put(monkeypatch, runtime_of(stored=stored))


def test_kernels_where_they_are_and_the_library_where_not(beside, monkeypatch):
    a, b = aligned((2, 64, 64)), aligned((2, 64, 64))
    assert einsum("bij,bjk->bik", a, b)[0, 0, 0] == 55 and len(beside.device.launched) == 1
    assert einsum("bij,bjk->bik", a, b, optimize="greedy")[0, 0, 0] == 55
    whole = np.ones((3, 4), np.int64)
    calls = [("ij,kj", whole, whole), ("ij,kj", whole + 1j, whole), ("ij,ij->ij", a[0], b[0]), ("ij,ij->i", a[0], b[0])]
    for text, *each in calls:
        np.testing.assert_array_equal(einsum(text, *each), np.einsum(text, *each))
    np.testing.assert_array_equal(vdot(whole * 1j, whole), np.vdot(whole * 1j, whole))
    np.testing.assert_array_equal(outer(a[0, 0], b[0, 0]), np.outer(a[0, 0], b[0, 0]))
    out = np.zeros((64, 64), np.float32)
    assert outer(a[0, 0], b[0, 0], out) is out
    assert dot(whole, whole.T, np.zeros((3, 3), np.int64))[0, 0] == 4
    np.testing.assert_array_equal(tensordot(whole, whole, ([0, 1], [0, 1])), 12)
    with pytest.raises(TypeError, match="Iterator operand 0"):  # NumPy's own rule; CuPy has none
        einsum("ij,jk->ik", a[0], b[0], dtype=np.int8)
    assert len(beside.device.launched) == 2
    monkeypatch.setenv("GENSOR_TUNE", "auto")
    beside.plans.clear()
    assert einsum("bij,bjk->bik", a, b)[0, 0, 0] == 0  # no timing shows a win


def test_chains_of_the_librarys_contractions_are_one_call(beside, monkeypatch):
    asked = []
    real = np.einsum
    monkeypatch.setattr(np, "einsum", lambda *each, **more: asked.append(each[0]) or real(*each, **more))
    whole = np.ones((3, 3), np.int64)
    for _ in range(2):
        np.testing.assert_array_equal(einsum("ij,jk,kl->li", whole, whole, whole, optimize=True), whole * 9)
    assert asked == ["ij,jk,kl->li"] * 2
    a = aligned((64, 64))
    assert einsum("ij,jk,kl->il", a, a, a)[0, 0] == 55 and len(beside.device.launched) == 2 and len(asked) == 2


def test_refused_launches_go_to_the_library(beside, caplog):
    a = aligned((64, 64))
    beside.device.launch = lambda *_: 1 // 0
    np.testing.assert_array_equal(einsum("ij,jk->ik", a, a), a)
    assert "refused" in caplog.text
    np.testing.assert_array_equal(einsum("ij,jk->ik", a, a), a)
    beside.device.fails = {"load": BuildError("no image for this device")}
    np.testing.assert_array_equal(einsum("ij,jk->ik", aligned((128, 64)), a), np.zeros((128, 64)))


def test_inside_a_capture_what_is_loaded_stands_by(beside, monkeypatch):
    monkeypatch.delenv("GENSOR_TUNE")
    a, device = aligned((2, 64, 64)), beside.device

    def call(capturing=False):
        device.is_capturing = capturing
        return einsum("bij,bjk->bik", a, a)[0, 0, 0]

    assert call() == 0 and not device.loaded
    assert call(capturing=True) == 0 and not device.loaded  # nothing is loaded while a graph is recorded
    assert call() == 0 and len(device.loaded) == 1
    assert call(capturing=True) == 55 and len(device.launched) == 1
    assert call() == 0


def test_operands_are_copied_once_for_kernels_only(beside, monkeypatch):
    copies, real = [], Gathered.made
    monkeypatch.setattr(Gathered, "made", lambda *each: copies.append(each[2].shape) or real(*each))
    a, b = aligned((64, 8, 8)), aligned((8, 64, 8))
    assert einsum("ikl,kjl->ij", a, b)[0, 0] == 55 and copies == [(8, 64, 8)]
    np.testing.assert_array_equal(einsum("ikl,kjl->ij", a.astype(int), b.astype(int)), np.zeros((64, 64)))
    assert copies == [(8, 64, 8)]


def test_recorded_calls_are_products(beside, tmp_path):
    a = aligned((2, 64, 64))
    einsum("bij,bjk->bki", a, a)
    with gensor_kernels.record(tmp_path / "calls.csv"):
        for _ in range(3):
            einsum("bij,bjk->bki", a, a)
        einsum("ij,kj", a[0].astype(int), a[0].astype(int))
    lines = (tmp_path / "calls.csv").read_text().splitlines()
    header, *rows = (line.split(",") for line in lines)
    found = {(row[header.index("op")], row[header.index("m")], row[header.index("count")]) for row in rows}
    assert ("batched_matmul", "64", "3") in found and len(rows) == 2


# ---- CuPy's own arrays


@pytest.fixture
def cuda(fake_cupy, monkeypatch):
    """A Runtime of real `cupy.ndarray`s over a fake allocator and a fake driver."""
    import cupy

    from tests.doubles.fake_cuda import FakeCudaDevice

    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    return cupy, put(monkeypatch, runtime_of(FakeCudaDevice(), kernels(workload()))), fake_cupy


def test_cupy_arrays_are_launched_on_as_they_lie(cuda):
    cupy, _, calls = cuda
    q, k = cupy.empty((2, 64, 4, 32), np.float32), cupy.empty((2, 32, 4, 96), np.float32)
    for _ in range(2):
        scores = einsum("bihd,bdhj->bhij", q, k)
        assert type(scores) is cupy.ndarray and scores.shape == (2, 4, 64, 96) and scores.flags.c_contiguous
    (*_, params), (*_, again) = calls
    a, b, c = struct.unpack_from("<3Q", again)
    assert (a, b, c) == (q.data.ptr, k.data.ptr, scores.data.ptr) and params[24:152] == again[24:152]
    assert struct.unpack_from("<4i", again, 200) == (64, 96, 32, 8)  # m, n, k, batch
    assert struct.unpack_from("<5q", again, 40) == (0, 64 * 4 * 32, 32, 4 * 32, 1)  # strides of a
    found = einsum("bihd,bdhj->bijh", q, k)
    assert found.shape == (2, 64, 96, 4) and found.strides == (98304, 384, 4, 24576)
    out = cupy.empty((64, 96), np.float32)
    assert dot(q[0, :, 0], k[0, :, 0], out) is out and calls[-1][-1][16:24] == struct.pack("<Q", out.data.ptr)
    assert tensordot(q, k[0, :, 0], 1).shape == (2, 64, 4, 96) and inner(q, k[0, :, 0].T).shape == (2, 64, 4, 96)


def test_cupys_own_functions_get_the_callers_operands(cuda, monkeypatch):
    cupy, _, calls = cuda
    asked = []

    def library_function(name):
        def function(*arguments, **keywords):
            asked.append((name, *arguments))
            return cupy.empty((3, 3), np.complex64)

        return function

    for name in ("einsum", "tensordot", "dot", "inner"):
        monkeypatch.setattr(cupy, name, library_function(name))
    a = cupy.empty((3, 3), np.complex64)
    einsum("ij,jk", a, a)
    einsum(a, [0, 1], a, [1, 2])
    einsum("ij,jk,kl", a, a, a)
    einsum("ii", a)
    tensordot(a, a, 1)
    dot(a, a)
    inner(a, a)
    assert [each[0] for each in asked] == ["einsum"] * 4 + ["tensordot", "dot", "inner"] and not calls
    assert asked[0][1:] == ("ij,jk", a, a) and asked[1][1:] == ("AB,BC", a, a) and asked[4][1:] == (a, a, 1)
    with pytest.raises(TypeError, match=r"b must be a cupy array, not numpy\.ndarray"):
        dot(a, np.eye(3))


def test_tf32_follows_cupys_switch(cuda, monkeypatch):
    cupy, runtime, calls = cuda
    from gensor_kernels.devices import cuda as cuda_device

    runtime.library = library.Library(library.Contents(kernels(workload(math="tf32"))))
    state = [True]
    monkeypatch.setattr(cuda_device.CudaDevice, "tf32", lambda self: state[0])
    monkeypatch.setattr(cupy, "einsum", lambda *_, **__: cupy.empty((2, 64, 64), np.float32))
    a = cupy.empty((2, 64, 64), np.float32)
    einsum("bij,bjk->bik", a, a)
    assert len(calls) == 1
    state[0] = False  # no IEEE kernel is stored
    assert runtime.contract("bij,bjk->bik", a, a).shape == (2, 64, 64)
    assert len(calls) == 1
    state[0] = True
    assert einsum("bij,bjk->ibk", a, a).strides == (512, 256, 4) and len(calls) == 2
    einsum("bij,bjk->bik", a, a)
    assert len(calls) == 3
