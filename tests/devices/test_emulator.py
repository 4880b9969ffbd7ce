"""The emulator runs kernels right, reports every broken rule by its kind, and survives all of them."""

import functools
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gensor_kernels.devices.emulator import KernelFault, build, build_many, run
from gensor_kernels.devices.emulator import build as build_library
from gensor_kernels.devices.emulator.build import compiler
from gensor_kernels.errors import BuildError, ToolMissingError
from gensor_kernels.families.core.family import Launch
from tests.doubles.emulated_kernels import SMALL, execute, gemm, source, toy

MODES = [
    {"order": "forward", "copies": "late"},
    {"order": "reverse", "copies": "early"},
    {"order": 1, "copies": "late"},
    {"order": 2, "copies": "early", "resident": 3},
]


@pytest.mark.parametrize("shape", [(128, 128, 64), (200, 136, 72), (1, 8, 8), (129, 264, 1000)], ids=str)
def test_a_correct_kernel_gives_the_product_and_no_conflict(shape):
    m, n, k = shape
    blocks, steps = -(-m // 128) * -(-n // 128), -(-k // 32)
    reference = None
    for mode in MODES:
        error, counters = gemm(*shape, **mode)
        assert error < 1 and counters.bank_conflicts == 0
        assert counters["blocks"] == blocks
        assert counters["barriers"] == blocks * steps
        assert counters["matrix_multiplies"] == blocks * steps * 8 * 2 * 16
        assert counters.branches["drain"] == blocks * 256 * min(steps, 2)
        assert counters.branches.get("steady", 0) == blocks * 256 * max(steps - 2, 0)
        assert counters.global_widths("global_store") == {2: m * n}
        assert counters.global_widths("copy") == {16: counters["copy_16"]}
        assert counters["copy_16"] + counters["copies_zeroed"] == blocks * steps * 1024
        counters.pop("switches")  # the only count that depends on the order
        assert reference in (None, (counters, counters.branches))
        reference = (counters, counters.branches)


def test_an_access_beyond_a_buffer_falls_into_no_other():
    memory = np.zeros(64, np.float32)  # both halves side by side in the host
    kernel = """KERNEL(test, Params, 32, 0) {
        const Vec<4> value = load_global<4>(gptr<float>(params.p[0]) + (thread_index() + params.n), true);
        store_global(gptr<float>(params.p[1]) + thread_index(), value, true);
    }"""
    execute(kernel, [memory[:32], memory[32:]], n=0)
    with pytest.raises(KernelFault, match="byte 128 of buffer 0 of 128 bytes"):
        execute(kernel, [memory[:32], memory[32:]], n=1)


@pytest.mark.parametrize(
    ("bug", "kind", "text"),
    [
        ("NO_BARRIER", "race|uninitialised", "shared byte"),
        ("SHORT_WAIT", "race", "unfinished asynchronous copy"),
        ("NO_GUARD", "out_of_bounds", "of buffer 0 of 105600 bytes"),
        ("ODD_ADDRESS", "misaligned", "16-byte global load"),
        ("DIVERGENT", "divergent", "while other lanes of its warp are at"),
        ("OTHER_BARRIER", "divergent", "while others are at that of line"),
        ("UNWRITTEN", "uninitialised", "nothing has written"),
        ("READ_ONLY", "out_of_bounds", "read-only"),
        ("SHARED_BOUND", "out_of_bounds", "byte 49152 of 49152"),
        ("TWICE", "race", "follows a store to it"),
        ("HANG", "timeout", "stopped after 1 seconds"),
    ],
)
def test_every_planted_bug_is_named(bug, kind, text):
    for mode in MODES[:3] if bug != "HANG" else MODES[:1]:
        with pytest.raises(KernelFault) as caught:
            gemm(200, 136, 264, bug, seconds=1, **mode)
        assert caught.value.kind in kind.split("|")
        assert text in caught.value.message and caught.value.message.startswith("gemm, block ")
        assert bug == "HANG" or re.search(r"line \d+", caught.value.message)


def test_lanes_that_left_are_a_deadlock():
    with pytest.raises(KernelFault, match="no thread can go on: thread 0 on at load_matrix") as caught:
        gemm(200, 136, 264, "DEADLOCK", races=False)
    assert caught.value.kind == "deadlock"


def test_a_wrong_swizzle_is_right_but_slow():
    error, counters = gemm(128, 128, 32, "NO_SWIZZLE")
    # A: rows 64 bytes apart fall on 2 of 8 places, 4 to each. B: rows 256 bytes apart on 1, 8 to it. Copies to rows
    # in their own order have no conflict.
    assert error < 1
    loads = counters["matrix_loads"] // 6
    assert counters["conflicts_matrix_load"] == loads * 4 * (4 * 3 + 2 * 7)
    assert counters.bank_conflicts == counters["conflicts_matrix_load"]


@pytest.mark.parametrize("bug", ["NO_BARRIER", "SHORT_WAIT"])
def test_late_copies_show_even_without_the_race_detector(bug):
    error, _ = gemm(200, 136, 264, bug, races=False, copies="late")
    assert not error < 1


def test_a_library_goes_on_after_a_fault():
    with pytest.raises(KernelFault):
        gemm(200, 136, 264, "SHARED_BOUND", races=False)
    for _ in range(2):
        with pytest.raises(KernelFault):
            gemm(200, 136, 264, "SHARED_BOUND")
        assert gemm(200, 136, 264)[0] < 1


def test_threads_can_run_one_library_and_several():
    want = gemm(200, 136, 264)
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(gemm, 200, 136, 264, bug) for bug in ["NONE", "NO_SWIZZLE"] * 4]
    for i, job in enumerate(jobs):
        error, counters = job.result()
        assert error == want[0] and counters.branches == want[1].branches
        assert (counters.bank_conflicts == 0) == (i % 2 == 0)


def test_only_chosen_blocks_run():
    _, counters = gemm(304, 304, 40)
    assert counters["blocks"] == 9
    error, counters = gemm(304, 304, 40, blocks=[0, 8, 40])
    assert counters["blocks"] == 2 and not error < 1  # the other tiles of C keep their NaN


STACK = toy("deep_stack")
EMPTY = "KERNEL(test, Params, 64, 0) {}\nKERNEL(empty, Params, 64, 0) {}\n"


def test_an_overflowing_stack_is_a_fault():
    x = np.zeros(64, np.float32)
    execute(small_stack := STACK.replace("SIZE", "10000"), [x], n=1, block=64)
    with pytest.raises(KernelFault, match="overflowed its stack") as caught:
        execute(STACK.replace("SIZE", "13000"), [x], n=1, block=64)
    assert caught.value.kind == "stack"
    with pytest.raises(BuildError, match="frame size"):
        execute(small_stack.replace("10000", "17000"), [x], n=1, block=64)


def test_launches_must_fit_the_kernel():
    library = build_library(source(SMALL + EMPTY))
    for launch, size, text in [
        (Launch("none", 1, 64, 0), 56, "no kernel 'none'"),
        (Launch("test", 1, 65, 0), 56, "bound to 64 threads, not 65"),
        (Launch("test", 1, 64, 0), 55, "takes 56 bytes of Params, not 55"),
        (Launch("test", 0, 64, 0), 56, "no device launches"),
        (Launch("test", 2**31, 64, 0), 56, "no device launches"),
        (Launch("test", 1, 64, (227 << 10) + 1), 56, "no device launches"),
        (Launch("test", 2, 64, 0, cluster=2), 56, "in clusters of 1 blocks"),
    ]:
        with pytest.raises(ValueError, match=text):
            run(library, [launch], bytes(size), [])
    with pytest.raises(ValueError, match="order is"):
        run(library, [], bytes(56), [], order="sideways")
    with pytest.raises(ValueError, match="copies is"):
        run(library, [], bytes(56), [], copies="never")
    assert run(library, [Launch("empty", 3, 40, 0)] * 2, bytes(56), [])["blocks"] == 6


def test_a_result_may_lie_in_an_operand():
    kernel = """KERNEL(test, Params, 32, 0) {
        auto x = load_global<4>(gptr<float>(params.p[0]) + thread_index(), true);
        store_global<4>(gptr<float>(params.p[1]) + (thread_index() ^ params.n), x, true);
    }"""
    x = np.arange(32, dtype=np.float32)
    execute(kernel, [x, x], apart=False)
    with pytest.raises(KernelFault, match=r"load at test.cu line .* follows a store"):
        execute(kernel, [x, x], n=1, apart=False)


def test_a_built_library_is_found_again(fresh):
    text = source(SMALL + EMPTY)
    first = build(text)
    stamp = first.stat().st_mtime_ns
    assert build(text) == first and first.stat().st_mtime_ns == stamp
    assert build(text + "\n") != first
    assert sorted(path.suffix for path in (fresh / "emulator").iterdir()) == [".o", ".so", ".so"]


def test_many_builds_keep_order_and_give_errors_as_values(fresh):
    good, bad = source(SMALL + EMPTY), source(SMALL + "KERNEL(test, Params, 32, 0) { nonsense; }")
    results = build_many([good, bad, good], jobs=2)
    assert results[0] == results[2] == build(good)
    assert isinstance(results[1], BuildError) and "nonsense" in str(results[1])
    assert "test.cu:" in results[1].log


def test_concurrent_builds_of_one_source_agree(fresh):
    text, gate = source(SMALL + EMPTY), threading.Barrier(3)

    def job():
        gate.wait()
        return build(text)

    with ThreadPoolExecutor(3) as pool:
        paths = {future.result() for future in [pool.submit(job) for _ in range(3)]}
    assert len(paths) == 1
    assert len(list((fresh / "emulator").iterdir())) == 2  # nothing half-built is left


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys.modules[compiler.__module__], "compiler", functools.cache(compiler.__wrapped__))
    with pytest.raises(ToolMissingError, match="apt install g"):
        build_library(source(SMALL + EMPTY))


def test_the_portable_context_switch_gives_the_same(monkeypatch, tmp_path):
    """ucontext, which stands in on other processors, schedules the very same steps."""
    want = [gemm(200, 136, 72, **mode) for mode in MODES]
    module = sys.modules[compiler.__module__]
    monkeypatch.setattr(module, "EMULATOR_FLAGS", (*module.COMMON_FLAGS, "-O0", "-DEMULATOR_UCONTEXT"))
    monkeypatch.setattr(module, "_emulator_digest", functools.cache(module._emulator_digest.__wrapped__))
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path))
    for mode, (error, counters) in zip(MODES, want, strict=True):
        again, other = gemm(200, 136, 72, **mode)
        assert (again, other, other.branches) == (error, counters, counters.branches)
    with pytest.raises(KernelFault, match=r"uninitialised|race"):
        gemm(200, 136, 72, "NO_BARRIER")
