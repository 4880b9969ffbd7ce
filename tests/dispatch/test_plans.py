"""Plans of calls, on a device of NumPy arrays that writes launches down, and on CuPy's arrays."""

import gc
import struct
import threading
import time
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from gensor_kernels import dot, einsum, inner, outer, tensordot, vdot
from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.functions.contraction import StridedCopy
from gensor_kernels.dispatch.plans.choose import choose
from gensor_kernels.dispatch.plans.plan import LibraryPlan, Plan
from gensor_kernels.errors import BuildError
from tests.doubles.kernels import aligned, asked, kernels, put, runtime_of, starters, workload
from tests.threads import in_threads


@pytest.mark.parametrize("stocked", [False, True], ids=["library", "kernels"])
@pytest.mark.parametrize("strided", [False, True], ids=["plain", "converted"])
def test_plans_keep_no_array_alive(stocked, strided, request):
    made = request.getfixturevalue("stocked_runtime") if stocked else runtime_of()
    arrays = [aligned((64, 64), np.float32) for _ in range(3)]
    if strided:
        arrays[1] = arrays[1].astype(np.int16)
    alive = [weakref.ref(array) for array in arrays]
    for _ in range(3):
        made.call(arrays[0], arrays[1], None, (Operation("add", arrays[2]), Operation("relu")), None, None)
    assert len(made.plans) >= 1
    if stocked:
        made.device.launched.clear()
    arrays.clear()
    gc.collect()
    assert [each() for each in alive] == [None] * 3


@pytest.fixture
def stocked_runtime(monkeypatch):
    """A runtime whose kernels serve every float32 call of one class, and write 55 everywhere."""
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    monkeypatch.setenv("GENSOR_COMPARE", "0")  # 55 is no product
    wanted = workload()
    return runtime_of(stored=kernels(wanted, cubin=b""))


def test_overlapping_results_go_through_a_temporary(stocked_runtime):
    memory = aligned((3, 64, 64))
    a, b = memory[0], memory[1]
    seen = stocked_runtime.device.launched
    for out in (a, b, memory.reshape(-1)[64 * 32 : 64 * 96].reshape(64, 64)):
        seen.clear()
        stocked_runtime.call(a, b, out, (), None, None)
        assert seen[-1][1][0] is not out and out[0, 0] == 55
        out[...] = 0
    seen.clear()
    stocked_runtime.call(a, b, memory[2], (), None, None)
    assert seen[-1][1][0] is memory[2] or seen[-1][1][0].ctypes.data == memory[2].ctypes.data
    out = aligned((64, 64))
    stocked_runtime.call(a, b, out, (Operation("add", out),), None, None)
    assert seen[-1][1][0] is not out and out[0, 0] == 55


def test_captured_calls_launch_what_is_loaded_and_load_nothing(stocked_runtime, monkeypatch):
    monkeypatch.delenv("GENSOR_TUNE")
    device = stocked_runtime.device
    a = aligned((64, 64))

    def call(rows=64, capturing=False):
        device.is_capturing = capturing
        stocked_runtime.call(aligned((rows, 64)), a, aligned((rows, 64)), (), None, None)

    call(capturing=True)
    assert not device.loaded and not device.launched and not stocked_runtime.plans  # nothing was kept either
    call()
    assert not device.loaded  # one call of CuPy's, and nothing paid for a shape that may never come back
    call(capturing=True)
    assert not device.loaded and not device.launched
    call()
    assert len(device.loaded) == 1 and not device.launched  # it came back: a kernel stands by
    call(capturing=True)
    assert len(device.launched) == 1
    call()
    assert len(device.launched) == 1
    call(rows=48, capturing=True)  # shapes never seen before, whose kernel is loaded already
    assert len(device.launched) == 2
    call(rows=32)
    call(rows=32, capturing=True)
    assert len(device.launched) == 3 and len(set(device.loaded)) == 1


def test_tf32_kernels_serve_only_while_the_switch_is_on(monkeypatch):
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    made = runtime_of(stored=kernels(workload(math="tf32"), cubin=b""))  # no IEEE kernel is stored
    device, a = made.device, aligned((64, 64))
    for device.allows_tf32, served in ((True, 55), (False, 0), (True, 55)):
        assert made.call(a, a, None, (), None, None)[0, 0] == served
        assert made.contract("ij,jk->ik", a, a)[0, 0] == served
    assert made.call(a, a, None, (), None, "tf32")[0, 0] == 55
    assert made.call(a, a, None, (), None, "ieee")[0, 0] == 0
    monkeypatch.setenv("GENSOR_DISABLE", "1")
    made.plans.clear()
    assert made.call(a, a, None, (), None, None)[0, 0] == 0


def test_a_kernel_that_the_device_refuses_goes_to_the_library(stocked_runtime, caplog):
    a = aligned((64, 64))
    for b, call in (
        (aligned((128, 64)), lambda b: stocked_runtime.call(b, a, None, (), None, None)),
        (aligned((192, 64)), lambda b: stocked_runtime.contract("ij,jk->ik", b, a)),
    ):
        stocked_runtime.device.fails = {"load": BuildError("no image for this device")}
        np.testing.assert_array_equal(call(b), b @ a)
        assert "no image for this device" in caplog.text
        stocked_runtime.device.fails = ()
        stocked_runtime.plans.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stocked_runtime.device, "launch", lambda *_: 1 // 0)
            for _ in range(2):
                np.testing.assert_array_equal(call(b), b @ a)
        assert "refused" in caplog.text
        caplog.clear()


def test_a_child_forked_in_a_dry_run_finds_its_warm_calls():
    made = runtime_of()
    with made.dry_run():
        assert made.find != made.plans.get
        made.after_fork()
        assert made.find == made.plans.get
    assert made.find == made.plans.get


def test_extents_beyond_int32_are_the_librarys(stocked_runtime):
    one = np.zeros(1, np.float32)
    long = np.lib.stride_tricks.as_strided(one, (2**31, 1), (0, 0))
    choice, lowered = choose(*asked(stocked_runtime, long, one[None]), False)
    assert choice.tier == 4 and "2^31" in choice.reason and lowered is None
    wide = np.lib.stride_tricks.as_strided(one, (2**30, 64), (0, 0))  # extents fit, the offset of its end does not
    _, lowered = choose(*asked(stocked_runtime, wide, one[None].repeat(64, 0)), False)
    assert lowered.problem.geometry.sizes == (2**30, 1, 64)


# ---- contractions, with NumPy in place of CuPy


@pytest.fixture
def beside(monkeypatch):
    """A Runtime of NumPy arrays that is no emulator, with kernels for aligned float32 products."""
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    monkeypatch.setenv("GENSOR_COMPARE", "0")  # 55 is no product
    stored = {k.digest: k for turned in (False, True) for k in starters(workload(trans_b=turned))}
    return put(monkeypatch, runtime_of(stored=stored))


def test_contractions_without_a_kernel_go_to_the_library(beside, monkeypatch):
    a, b, whole = aligned((2, 64, 64)), aligned((2, 64, 64)), np.ones((3, 4), np.int64)
    assert einsum("bij,bjk->bik", a, b)[0, 0, 0] == 55 and len(beside.device.launched) == 1
    assert einsum("bij,bjk->bik", a, b, optimize="greedy")[0, 0, 0] == 55
    for text, *each in (("ij,kj", whole + 1j, whole), ("ij,ij->ij", a[0], b[0]), ("ij,ij->i", a[0], b[0])):
        np.testing.assert_array_equal(einsum(text, *each), np.einsum(text, *each))
    for function in (vdot, outer):
        np.testing.assert_array_equal(function(whole * 1j, whole), getattr(np, function.__name__)(whole * 1j, whole))
    assert dot(whole, whole.T, np.zeros((3, 3), np.int64))[0, 0] == 4
    np.testing.assert_array_equal(tensordot(whole, whole, ([0, 1], [0, 1])), 12)
    with pytest.raises(TypeError, match="Iterator operand 0"):  # NumPy's own rule; CuPy has none
        einsum("ij,jk->ik", a[0], b[0], dtype=np.int8)
    assert len(beside.device.launched) == 2
    monkeypatch.setenv("GENSOR_TUNE", "auto")
    beside.plans.clear()
    assert einsum("bij,bjk->bik", a, b)[0, 0, 0] == 0  # no timing shows a win


def test_a_chain_that_the_library_serves_is_one_call(beside, monkeypatch):
    asked = []
    real = np.einsum
    monkeypatch.setattr(np, "einsum", lambda *each, **more: asked.append(each[0]) or real(*each, **more))
    whole = np.ones((3, 3), np.int64)
    for _ in range(2):
        np.testing.assert_array_equal(einsum("ij,jk,kl->li", whole, whole, whole, optimize=True), whole * 9)
    assert asked == ["ij,jk,kl->li"] * 2
    a = aligned((64, 64))
    assert einsum("ij,jk,kl->il", a, a, a)[0, 0] == 55 and len(beside.device.launched) == 2 and len(asked) == 2


@pytest.mark.parametrize("captured", [False, True])
def test_threads_make_one_kernel_stand_by(beside, captured):
    """Two threads reach the second run together; inside a capture both need the kernel."""
    made, meeting, served = [], threading.Barrier(2), []

    class Standing(Plan):
        def serve(self, *arrays):
            served.append(self)

    def standby(*_):
        made.append(Standing(plan.call))
        time.sleep(0.02)  # the other thread comes meanwhile
        return made[-1]

    function = SimpleNamespace(by_library=lambda *_: served.append(None))
    call = SimpleNamespace(device=beside.device, function=function, parameters=None, result=None, precision=None)
    plan = LibraryPlan(call, "", standby)
    plan.serve((), None, ())
    beside.device.is_capturing = captured
    in_threads(lambda _: (meeting.wait(), plan.serve((), None, ())), range(2))
    assert len(made) == 1 and served == [None] + [made[0] if captured else None] * 2


def test_operands_are_copied_once_for_kernels_only(beside, monkeypatch):
    copies, real = [], StridedCopy.make
    monkeypatch.setattr(StridedCopy, "make", lambda *each: copies.append(each[2].shape) or real(*each))
    a, b = aligned((64, 8, 8)), aligned((8, 64, 8))
    assert einsum("ikl,kjl->ij", a, b)[0, 0] == 55 and copies == [(8, 64, 8)]
    np.testing.assert_array_equal(einsum("ikl,kjl->ij", a.astype(int), b.astype(int)), np.zeros((64, 64)))
    assert copies == [(8, 64, 8)]


# ---- CuPy's own arrays


@pytest.fixture
def cuda(orin, monkeypatch):
    """(CuPy, a Runtime, the machine) of real `cupy.ndarray`s over the strict double of the driver."""
    return orin.cupy, put(monkeypatch, runtime_of(orin.device(), kernels(workload()))), orin


def test_launches_get_addresses_and_strides_of_cupys_arrays(cuda):
    cupy, _, orin = cuda
    q, k = cupy.empty((2, 64, 4, 32), np.float32), cupy.empty((2, 32, 4, 96), np.float32)
    for _ in range(2):
        scores = einsum("bihd,bdhj->bhij", q, k)
        assert isinstance(scores, cupy.ndarray) and scores.shape == (2, 4, 64, 96) and scores.flags.c_contiguous
    (*_, params), (*_, again) = orin.calls
    a, b, c = struct.unpack_from("<3Q", again)
    assert (a, b, c) == (q.data.ptr, k.data.ptr, scores.data.ptr) and params[24:152] == again[24:152]
    assert struct.unpack_from("<4i", again, 200) == (64, 96, 32, 8)  # m, n, k, batch
    assert struct.unpack_from("<5q", again, 40) == (0, 64 * 4 * 32, 32, 4 * 32, 1)  # strides of a
    found = einsum("bihd,bdhj->bijh", q, k)
    assert found.shape == (2, 64, 96, 4) and found.strides == (98304, 384, 4, 24576)
    out = cupy.empty((64, 96), np.float32)
    assert dot(q[0, :, 0], k[0, :, 0], out) is out and orin.calls[-1][-1][16:24] == struct.pack("<Q", out.data.ptr)
    assert tensordot(q, k[0, :, 0], 1).shape == (2, 64, 4, 96) and inner(q, k[0, :, 0].T).shape == (2, 64, 4, 96)


def test_cupys_own_functions_get_the_callers_operands(cuda, monkeypatch):
    cupy, _, orin = cuda
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
    assert [each[0] for each in asked] == ["einsum"] * 4 + ["tensordot", "dot", "inner"] and not orin.calls
    assert asked[0][1:] == ("ij,jk", a, a) and asked[1][1:] == ("AB,BC", a, a) and asked[4][1:] == (a, a, 1)
    with pytest.raises(TypeError, match=r"b must be a cupy array, not numpy\.ndarray"):
        dot(a, np.eye(3))
