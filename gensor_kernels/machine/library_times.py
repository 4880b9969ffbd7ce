"""How long one operation of the array library takes on a part: products, passes over arrays, and the error of both.

The figures are in library_times.toml, with their sources.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple

from .arch import Arch, tomllib

#: Multiply-adds of a step along k: blocks compute whole ones.
K_STEP = 64


class Estimate(NamedTuple):
    """Predicted microseconds, and between which 80 % of measured times are expected."""

    us: float
    low: float
    high: float

    def __add__(self, other: Any) -> Estimate:
        """Return the time of one after the other."""
        return Estimate(self.us + other.us, self.low + other.low, self.high + other.high)


@cache
def _figures() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("library_times.toml").read_text(encoding="utf-8"))


def pass_time(nbytes: float, arch: Arch, kind: str = "elements", rows: int = 0) -> Estimate:
    """Return the time of an operation that reads and writes so many bytes once.

    `kind` is "elements", "lookups", or "reductions", whose `rows` are read by one block each.
    """
    given = _figures()["passes"]
    us = nbytes * 1e-3 / (arch.dram_gb_s * given["memory"][kind])
    if rows:
        us = max(us, math.ceil(rows / arch.sms) * nbytes / rows / given["row_bytes_per_clk"] / arch.clock_ghz * 1e-3)
    return _expected(us, "passes", arch)


def _expected(us: float, kind: str, arch: Arch) -> Estimate:
    """Return a time on the device with its band; the host launches meanwhile, and counts where it takes longer."""
    figures = _figures()
    (low, high), (least, most) = figures[kind]["band"], figures["launches"]["band"]
    host = arch.launch_us
    return Estimate(max(us, host), max(low * us, least * host), max(high * us, most * host))


@cache
def _product_rate(dtype: str, mode: str, arch: Arch) -> float:
    """Return the FLOP per microsecond and SM of large products."""
    kind, shares = "tf32" if mode == "tf32" and dtype == "float32" else dtype, _figures()["products"]["share"]
    share = shares.get(arch.part, shares.get(arch.name, shares)).get(kind, shares[kind])
    found = arch.peak(dtype, mode, sustained=True) * 1e-6 * share / arch.sms
    return found / 4 if dtype.startswith("complex") else found


@lru_cache(maxsize=4096)  # a convolution has a product per tap
def product_time(dtype: str, mode: str, batch: int, m: int, n: int, k: int, nbytes: int, arch: Arch) -> Estimate:
    """Return the time of a product (batch, m, k) by (batch, k, n) of `dtype`; `mode` is "ieee" or "tf32".

    Blocks of one of a few sizes run in rounds on all SMs; the fastest size counts.

    Examples
    --------
    >>> from gensor_kernels.machine.arch import lookup
    >>> side = 8192
    >>> found = product_time("float16", "ieee", 1, side, side, side, 3 * 2 * side**2, lookup("h100-sxm"))
    >>> round(2e-6 * side**3 / found.us)  # TFLOP/s
    743
    """
    given, each = _figures()["products"], _product_rate(dtype, mode, arch)
    moved = nbytes * 1e-3 / (arch.dram_gb_s * given["memory"])
    if nbytes < given["cached"] * arch.l2_mb * 2**20:
        moved *= given["cached_time"]
    sharpness, best = given["sharpness"], math.inf
    l2 = arch.l2_bytes_per_clk * arch.clock_ghz * 1e3  # bytes per microsecond
    for rows, columns, ways, reached in given["tiles"]:
        blocks = batch * -(-m // rows) * -(-n // columns) * ways
        steps = -(-k // (ways * K_STEP)) * K_STEP
        busy = -(-blocks // arch.sms) * 2 * rows * columns * steps / (each * reached)
        # partial sums of float32 are written and read
        after = 0.0 if ways == 1 else given["split_us"] + 8 * batch * ways * m * n / l2
        if busy + after < best:  # else the norm is no less
            best = min(best, (busy**sharpness + moved**sharpness) ** (1 / sharpness) + after)
    return _expected(given["floor_us"] + best, "products", arch)
