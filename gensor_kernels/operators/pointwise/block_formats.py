"""Rounding to block-scaled formats: c = elements and l = scales of the blocks of a, both written as bits.

Operands: a (blocks, numbers), b = the scale of the tensor (1,) of NVFP4, l (blocks,), which kernels write, and
c (blocks, bytes).  All are without gaps; the size "batch" is the number of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gensor_kernels.arrays import DeviceArray, Namespace
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions, Operand, Operator
from gensor_kernels.operators.products.quantised import FORMATS, Format
from gensor_kernels.operators.tolerance.base import Expected, expect
from gensor_kernels.operators.types.dtypes import PACKED, decode, facts, float8_values
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload, alignment_class, contiguous

#: The largest numbers of elements, and the exponents of the powers of two below them.
LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "float4_e2m1fn_x2": 6.0}
#: Precision in bits and least exponent of elements.
DIGITS = {name: facts(name)[1:3] for name in ("float8_e4m3fn", "float8_e5m2")} | {"float4_e2m1fn_x2": (2, 0)}
#: Types of the numbers that kernels round.
ROUNDED = ("float32", "float16", "bfloat16")
#: Sizes that portfolios are chosen for; kernels count blocks in 32 bits.
USUAL, MOST_BLOCKS = tuple(4**power for power in range(4, 12)), 2**31 - 1
SPECIALS = (0.0, -0.0, math.inf, -math.inf, math.nan, 1e-42, 6.0, -448.0)


def quantise(xp: Namespace, x: DeviceArray, form: Format, alpha: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    """Return elements and scales, uint8, of float32 (..., k) whose blocks are whole; `alpha` is 1 for MX formats."""
    blocks = x.reshape(*x.shape[:-1], -1, form.group)
    largest = xp.abs(blocks).max(axis=-1)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if form.scale == "float8_e8m0fnu":
            scales = _powers_of_two(xp, largest, form)
            factors = xp.asarray(float8_values(form.scale).astype(np.float32))[scales]
        else:
            scales = _bits(xp, largest / LARGEST[form.element] / alpha, form.scale)
            factors = xp.asarray(float8_values(form.scale).astype(np.float32))[scales] * alpha
        # A block whose scale is rounded to zero has zeros.
        factors = xp.where(factors == 0, np.float32(np.inf), factors)
        bits = _bits(xp, blocks / factors[..., None], form.element).reshape(x.shape)
    return (bits[..., ::2] | bits[..., 1::2] << 4 if form.element in PACKED else bits), scales


def _powers_of_two(xp: Namespace, largest: DeviceArray, form: Format) -> DeviceArray:
    """Return e8m0 scales of blocks with these largest magnitudes: 2^(floor(log2(largest)) - emax), NaN for those that
    are not finite (OCP Microscaling Formats Specification 1.0, section 6.3)."""
    exponent = xp.where(largest > 0, xp.frexp(largest)[1] - 1 - _emax(form), -127)
    exponent = xp.clip(exponent, -127, 127)
    return xp.where(xp.isfinite(largest), exponent + 127, 255).astype(np.uint8)


def _emax(form: Format) -> int:
    return math.frexp(LARGEST[form.element])[1] - 1


def _bits(xp: Namespace, values: DeviceArray, name: str) -> DeviceArray:
    """Return the bits of numbers rounded to nearest, ties to even; beyond the largest number they saturate.

    NaN has no sign: processors differ about that of a quotient. In 4 bits it is 0.
    """
    (digits, least), unknown = DIGITS[name], xp.isnan(values)
    magnitude = xp.where(unknown, np.float32(0), xp.minimum(xp.abs(values), np.float32(LARGEST[name])))
    exponent = xp.where(magnitude > 0, xp.maximum(xp.frexp(magnitude)[1] - 1, least), least)
    steps = xp.rint(xp.ldexp(magnitude, digits - 1 - exponent)).astype(np.int32)
    # The hidden bit of the significand adds one to the exponent's field; so does a carry.
    bits = (exponent - least << digits - 1) + steps
    bits = bits | xp.signbit(values).astype(np.int32) << (3 if name in PACKED else 7)
    return xp.where(unknown, 0 if name in PACKED else 0x7F, bits).astype(np.uint8)


@dataclass(frozen=True)
class Quantiser(Operator):
    """The rounding to a format."""

    format: str = ""

    @property
    def form(self) -> Format:
        """The format."""
        return FORMATS[self.format]

    @property
    def emax(self) -> int:
        """Exponent of the power of two below the largest element."""
        return _emax(self.form)

    @property
    def names(self) -> tuple[str, ...]:
        """Operands in the order of kernels."""
        return ("a", *("b",) * (self.format == "nvfp4"), "l", "c")

    @property
    def written(self) -> tuple[str, ...]:
        """The scales."""
        return ("l",)

    def shapes(self, blocks: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the operands."""
        form = self.form
        return {"a": (blocks, form.group), "b": (1,), "l": (blocks,), "c": (blocks, form.group * form.bits // 8)}

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return the operands of `names`."""
        shapes = self.shapes(workload.size["batch"])
        if set(workload.layouts.values()) != {"blocks"}:
            raise ValueError(f"'layout' of operands is blocks, not {dict(workload.layouts)}")
        return tuple(Operand(name, shapes[name], tuple(range(len(shapes[name]))), 2) for name in self.names)

    def geometry(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Return the number of blocks: operands are without gaps."""
        blocks = workload.size["batch"]
        if blocks > MOST_BLOCKS:
            raise UnsupportedError(f"{blocks} blocks: more than kernels count in 32 bits")
        return Geometry((1, blocks, 1))

    def output(self, workload: Workload, strides: tuple[int, ...]) -> Strides:
        """Refuse operands of an epilogue."""
        raise UnsupportedError(f"{self.name} has no epilogue")

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the elements, which are exact; see Operator."""
        elements = self._results(workload, arrays)[0]
        return elements, np.zeros_like(elements)

    def expect_written(self, workload: Workload, arrays: Arrays, *, structured: bool = False) -> Mapping[str, Expected]:
        """Return the scales; see Operator."""
        scales = self._results(workload, arrays)[1][:, 0]
        return {"l": expect(scales, np.zeros_like(scales), accumulator="int32", output="int8")}

    def _results(self, workload: Workload, arrays: Arrays) -> list[np.ndarray]:
        x = decode(workload.dtype["a"], arrays["a"]).astype(np.float32)
        alpha = decode("float32", arrays["b"]).astype(np.float32)[0] if "b" in arrays else np.float32(1)
        return [bits.view(np.int8).astype(np.float64) for bits in quantise(np, x, self.form, alpha)]

    def draw(
        self, workload: Workload, name: str, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Return numbers of all magnitudes, whole blocks of zeros and special numbers among them; a scale near 1."""
        if name == "b":
            return np.exp2(rng.uniform(-2, 2, shape))
        if name != "a":
            return None
        values = np.ldexp(rng.standard_normal(shape), rng.integers(-20, 12, (shape[0], 1)) + rng.integers(-4, 3, shape))
        values = np.where(rng.random(shape) < 1 / 128, rng.choice(SPECIALS, shape), values)
        return np.where(rng.random((shape[0], 1)) < 1 / 16, -0.0, values)

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return a Workload of k blocks; see Operator."""
        return workload.with_sizes(batch=wanted["k"])

    def usual(self, workload: Workload) -> list[Workload]:
        """Return a few numbers of blocks."""
        return [workload.with_sizes(batch=count) for count in USUAL]

    def peak_dtype(self, workload: Workload) -> str:
        """Return the type whose rate bounds the arithmetic: that of the CUDA cores."""
        return "float32"

    def flops(self, workload: Workload) -> int:
        """Return a maximum, a quotient and a rounding of each number."""
        return 3 * workload.size["batch"] * self.form.group

    def bytes_moved(self, workload: Workload) -> int:
        """Return the bytes of all operands."""
        return sum(
            math.prod(each.shape) * facts(workload.dtype[each.name]).itemsize for each in self.operands(workload)
        )


def workload(format: str, blocks: int, dtype: str = "float32") -> Workload:
    """Return the Workload of contiguous operands at 16-byte aligned addresses."""
    declared = OPERATORS[f"quantise_{format}"]
    types = {"a": dtype, "b": "float32"}
    views = {each: contiguous(declared.shapes(blocks)[each], types.get(each, "uint8")) for each in declared.names}
    return workload_from_views(declared.name, views)


def workload_from_views(name: str, views: Mapping[str, View]) -> Workload:
    """Return the Workload of arrays without gaps, a and c of whole blocks; UnsupportedError for other types."""
    declared = OPERATORS[name]
    if views["a"].dtype not in ROUNDED:
        raise UnsupportedError(f"numbers of {views['a'].dtype}: kernels round {', '.join(ROUNDED)}")
    blocks = math.prod(views["a"].shape) // declared.form.group
    shapes, align = declared.shapes(blocks), {}
    dtypes = {each: views[each].dtype if each in "ab" else "int8" for each in declared.names}
    for each in declared.names:
        shape = shapes[each]
        flat = View(shape, (shape[-1], 1)[-len(shape) :], dtypes[each], views[each].alignment)
        align[each] = alignment_class(flat, 1 if each in "ac" else None)
    return Workload(
        operator=name,
        sizes=(("batch", blocks),),
        dtypes=tuple(dtypes.items()),
        accumulator="float32",
        math="ieee",
        layout=tuple((each, "blocks") for each in declared.names),
        alignment=tuple(align.items()),
    )


def _declare() -> tuple[()]:
    """Return nothing: `quantise` is the definition."""
    return ()


OPERATORS = {
    f"quantise_{format}": Quantiser(f"quantise_{format}", _declare, smallest=(("batch", 1),), format=format)
    for format in FORMATS
}
