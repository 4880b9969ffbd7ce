"""Products of 8-bit floats whose operands have a scale per block of elements.

C[m, n] = sum over k of A[m, k] D[m, k // 128] B[n, k] E[n // 128, k // 128]: each row of A has a float32 scale for
every 128 elements of k, and B has one for every 128 x 128 elements, as in DeepSeek-V3 (DeepSeek-AI, DeepSeek-V3
technical report, 2024, section 3.3.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.lowered import BLOCKS
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS, decode, peak_type
from gensor_kernels.operators.types.workload import View, Workload, contiguous

from . import matmul
from .scaled import ScaledProduct, scaled_workload

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression


NAME = "matmul_block_scaled"
#: Elements of k, and rows of B, that share a scale.
BLOCK = 128


def blocks_of(extent: int) -> int:
    """Return the number of blocks of scales along an axis."""
    return -(-extent // BLOCK)


def _shapes(m: int, n: int, k: int) -> dict[str, tuple[int, int]]:
    blocks = blocks_of(k)
    return {"a": (m, k), "b": (n, k), "d": (m, blocks), "e": (blocks_of(n), blocks), "c": (m, n)}


def declare() -> Expression:
    """Declare the sum over k of both operands times their scales."""
    from gensor_kernels.operators.expression import expression as ex

    m, n, k = ex.axes("m n k")
    steps, panels = ex.Axis("steps", (k + (BLOCK - 1)) // BLOCK), ex.Axis("panels", (n + (BLOCK - 1)) // BLOCK)
    step, panel = ex.affine(k) // BLOCK, ex.affine(n) // BLOCK
    numbers = ex.tensor("a", m, k)[m, k] * ex.tensor("b", n, k)[n, k]
    scales = ex.tensor("d", m, steps)[m, step] * ex.tensor("e", panels, steps)[panel, step]
    return ex.Expression("c", (m, n), numbers * scales, ex.SUM)


@dataclass(frozen=True)
class BlockScaled(ScaledProduct):
    """The product, for tuner and dispatch."""

    usual_sizes = MappingProxyType({"m": (1, 16, 128, 1024, 4096), "n": (2048, 4096, 7168), "k": (2048, 7168)})

    def shapes(self, size: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Return a (m, k), b (n, k), d (m, blocks of k), e (blocks of n, blocks of k), c (m, n)."""
        return _shapes(size["m"], size["n"], size["k"])

    def scales(self, workload: Workload) -> tuple[int, int]:
        """Return that both operands have a scale per block."""
        return BLOCKS, BLOCK

    def peak_dtype(self, workload: Workload) -> str:
        """Return dtypes.peak_type of the operands."""
        return peak_type(workload.dtype["a"], workload.dtype["b"])

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return the Workload at the wanted sizes."""
        return workload.with_sizes(m=wanted["m"], n=wanted["n"], k=wanted["k"])

    def draw(
        self, workload: Workload, name: str, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Return scales of one order of magnitude."""
        return rng.uniform(0.25, 1.75, shape) / 4 if name in "de" else None

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the product of the scaled operands in float64; see Operator.

        The bound is that of a product of 8-bit floats with scaled terms, and of three roundings more for each block of
        k: of the product of both scales, of the scaled sum, and of its addition.
        """
        from gensor_kernels.operators.tolerance import base as tolerance_base

        k, n = workload.size["k"], workload.size["n"]
        a, b, d, e = (decode(workload.dtype[name], arrays[name]).astype(np.float64) for name in "abde")
        step, panel = np.arange(k) // BLOCK, np.arange(n) // BLOCK
        with np.errstate(all="ignore"):
            left, right = a * d[:, step], (b * e[panel][:, step]).T
        product, size = matmul.reference(left, right), matmul.magnitude(left, right)
        bound = tolerance_base.accumulation_bound(
            product,
            size,
            k + 3 * blocks_of(k),
            dtype=workload.dtype["a"],
            accumulator=workload.accumulator,
            structured=conditions.structured,
        )
        return product, bound


OPERATOR = BlockScaled(NAME, declare, smallest=(("m", 1), ("n", 1), ("k", 1)))


def workload_from_views(views: Mapping[str, View], epilogue: Sequence[str] = ()) -> Workload:
    """Return the Workload of a (m, k), b (n, k), d (m, blocks of k), e (blocks of n, blocks of k), c (m, n) in memory.

    UnsupportedError for types that no kernel takes.
    """
    types = {name: view.dtype for name, view in views.items()}
    if not {types["a"], types["b"]} <= set(EIGHT_BIT_FLOATS):
        raise UnsupportedError(f"scales of blocks belong to 8-bit floats, not {types['a']} and {types['b']}")
    if {types["d"], types["e"]} != {"float32"}:
        raise UnsupportedError(f"scales of blocks are float32, not {types['d']} and {types['e']}")
    if types["c"] not in ("float32", "float16", "bfloat16"):
        raise UnsupportedError(f"products of scaled 8-bit floats are float32, float16 or bfloat16, not {types['c']}")
    (m, k), n = views["a"].shape, views["b"].shape[0]
    return scaled_workload(NAME, (("m", m), ("n", n), ("k", k)), views, {"c": "n"}, epilogue)


def workload(
    m: int,
    n: int,
    k: int,
    *,
    dtype: str = "float8_e4m3fn",
    dtype_b: str | None = None,
    out: str = "bfloat16",
    epilogue: Sequence[str] = (),
) -> Workload:
    """Return the Workload of contiguous arrays at 16-byte aligned addresses."""
    shapes = _shapes(m, n, k)
    types = {"a": dtype, "b": dtype_b or dtype, "d": "float32", "e": "float32", "c": out}
    return workload_from_views({name: contiguous(shapes[name], types[name]) for name in shapes}, epilogue)
