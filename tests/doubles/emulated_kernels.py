"""Kernels for the tests of the emulator: a multistage GEMM that can have bugs, and a launcher of small kernels."""

import re
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gensor_kernels.devices.emulator import AddressSpace, Buffer, Counters, build, run
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.source import bind, flatten


def toy(name: str) -> str:
    """The text of a small kernel for the tests of the layers below: toys/<name>.cu."""
    return Path(__file__).with_name("toys").joinpath(f"{name}.cu").read_text()


SOURCE = toy("product")
BUGS = re.search(r"enum \{(.*?)\}", SOURCE, re.DOTALL)[1].replace(",", " ").split()


def source(kernel: str = SOURCE, **constants: int) -> str:
    return bind(flatten("intrinsics.cuh") + '#line 1 "test.cu"\n' + kernel, constants)


def gemm(m: int, n: int, k: int, bug: str = "NONE", block: int = 128, **options) -> tuple[float, Counters]:
    """Worst error of the product, in units of float16 at the result's largest value, and the counters."""
    library: Path = build(source(BUG=BUGS.index(bug), BLOCK_M=block, BLOCK_N=block))
    rng = np.random.default_rng(m + n + k)
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float16)
    space = AddressSpace()
    addresses = [space.place(x.ctypes.data, x.nbytes, x is c) for x in (a, b, c)]
    params = struct.pack("<QQQiiii", *addresses, m, n, k, 0)
    grid = -(-m // block) * -(-n // block)
    launch = Launch("gemm", grid, block // 64 * (block // 32) * 32, 3 * 2 * block * 32 * 2)
    counters = run(library, [launch], params, space.buffers, **options)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.abs(c - exact).max() / np.abs(exact).max() * 2**11), counters


# Params of the small kernels: addresses, a number and a choice.
SMALL = """
struct Params {
    u64 p[6];
    int n, mode;
};
"""


def execute(
    kernel: str,
    arrays: list[np.ndarray],
    *,
    entry: str = "test",
    n: int = 0,
    mode: int = 0,
    grid: int = 1,
    block: int = 32,
    shared: int = 0,
    writable: int = 1,
    apart: bool = True,
    entries: Sequence[tuple[str, bool]] = (),
    **options,
) -> Counters:
    """Run `entry` of a small kernel, or `entries` (name, dependent), on arrays, the last `writable` of them written."""
    library = build(source(SMALL + kernel))
    first = len(arrays) - writable
    placed = [(x.ctypes.data, x.nbytes, i >= first) for i, x in enumerate(arrays)]
    if apart:
        space = AddressSpace()
        addresses, buffers = [space.place(*each) for each in placed], space.buffers
    else:  # the addresses of the host, where arrays may overlap
        addresses, buffers = [each[0] for each in placed], [Buffer(*each, each[0]) for each in placed]
    addresses += [0] * (6 - len(arrays))
    params = struct.pack("<6Qii", *addresses, n, mode)
    launches = [Launch(each, grid, block, shared, dependent=waits) for each, waits in entries or [(entry, False)]]
    return run(library, launches, params, buffers, **options)
