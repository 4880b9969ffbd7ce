"""Runs a contraction kernel, given by its constants alone, on the emulator against the float64 reference.

It needs no family module: shared memory, threads and grid are derived here from the rules at the top of the
`.cu` files, so the tests of the kernels and those of the family modules check each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from gensor_kernels.build.source import bind, flatten
from gensor_kernels.devices.emulator import AddressSpace, Counters, build, run
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types import epilogue
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, EIGHT_BIT_FLOATS, encode, facts, round_to
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core import params
from gensor_kernels.programs.core.family import Launch
from gensor_kernels.programs.core.tensor_maps import TensorMap

Constants = dict[str, int | str]

TOKENS = {
    "float64": "double", "float32": "float", "float16": "half_t", "bfloat16": "bfloat16_t",
    "int8": "i8", "int32": "i32", "complex64": "c64", "complex128": "c128",
    "float8_e4m3fn": "e4m3_t", "float8_e5m2": "e5m2_t",
}  # fmt: skip


def up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def class_constants(dtype: str, out: str | None = None, a: str = "k", b: str = "n", c: str = "n", **more) -> Constants:
    """Constants of a class: element types and the contiguous axis of each operand ("s": none)."""
    size, out = facts(dtype).itemsize, out or matmul.default_output(dtype)
    constants: Constants = {
        "IN_TYPE": TOKENS[dtype], "OUT_TYPE": TOKENS[out], "ACC_TYPE": TOKENS[ACCUMULATORS[dtype]],
        "A_LAYOUT": int(a == "m"), "B_LAYOUT": int(b == "n"),
        "A_UNIT": int(a != "s"), "B_UNIT": int(b != "s"), "C_UNIT": int(c != "s"),
        "A_VECTOR": 16 if a != "s" else size, "B_VECTOR": 16 if b != "s" else size,
        "C_VECTOR": 16 if c != "s" else facts(out).itemsize,
    }  # fmt: skip
    return constants | more


def simt_launch(c: Mapping[str, int | str]) -> tuple[int, int]:
    """(threads, shared bytes) of contraction_simt, as the top of contraction_simt.cu says."""
    v = {name: value for name, value in c.items() if isinstance(value, int)}
    word = {"float": 4, "double": 8, "i32": 4, "c64": 8, "c128": 16}[str(c["ACC_TYPE"])]
    threads = v["BLOCK_M"] // v["THREAD_M"] * (v["BLOCK_N"] // v["THREAD_N"])
    rows = [v[f"BLOCK_{axis}"] + 4 * (v["PAD"] and not v[f"{name}_LAYOUT"]) for name, axis in ("AM", "BN")]
    planes, tile_word = (3, word // 2) if v["FORM"] == 3 else (1, word)
    shared = v["STAGES"] * planes * sum(up(v["BLOCK_K"] * row * tile_word, 128) for row in rows)
    if v["EPILOGUE_STAGED"] and not v["SPLIT"]:
        room = (8 if v["THREAD_M"] * v["THREAD_N"] * word >= 256 else 16) // (2 if word > 8 else 1)
        store = next(r for r in (4, 2, 1) if r == 1 or (v["THREAD_M"] % r == 0 and r * v["THREAD_N"] <= room))
        shared = max(shared, 2 * up(store * v["BLOCK_M"] // v["THREAD_M"] * v["BLOCK_N"] * word, 128))
    return threads, shared


def mma_launch(c: Mapping[str, int | str]) -> tuple[int, int]:
    """(threads, shared bytes) of contraction_mma, as the top of contraction_mma.cu says."""
    v = {name: value for name, value in c.items() if isinstance(value, int)}
    bits = {"half_t": 16, "bfloat16_t": 16, "float": 32, "double": 64, "c128": 128, "i8": 8, "e4m3_t": 8, "e5m2_t": 8}
    bits["u4x2_t"] = 4
    held = {x: bits[str(c[f"{x}_STORED"] if v["ASYNC"] and f"{x}_STORED" in c else c["IN_TYPE"])] for x in "AB"}
    warps = v["BLOCK_M"] // v["WARP_M"] * (v["BLOCK_N"] // v["WARP_N"])
    shared = v["STAGES"] * (v["BLOCK_M"] * held["A"] + v["BLOCK_N"] * held["B"]) * v["BLOCK_K"] // 8
    shared += 32 * v.get("STREAM", 0)
    word = {"double": 8, "c128": 16}.get(str(c["ACC_TYPE"]), 4)
    return 32 * warps, max(shared, v["EPILOGUE_STAGED"] * warps * 16 * v["WARP_N"] * word)


def wgmma_launch(c: Mapping[str, int | str]) -> tuple[int, int]:
    """(threads, shared bytes) of contraction_wgmma, as the top of contraction_wgmma.cu says."""
    v = {name: value for name, value in c.items() if isinstance(value, int)}
    walks = v.get("PERSISTENT", 0)
    of_c = v["BLOCK_N"] // (2 if v.get("GATE") else 1)
    columns = next(n for n in (64, 48, 32, 16) if of_c % n == 0) if walks else of_c // (2 if of_c > 128 else 1)
    slabs = v["CONSUMERS"] * (256 * columns * v["EPILOGUE_STAGED"] + 16384 * v.get("STORE_COPIES", 0))
    ring = v["STAGES"] * (v["BLOCK_M"] + v["BLOCK_N"]) * v["BLOCK_K"] * wgmma_element(c)
    return 128 * (v["CONSUMERS"] + 1), 1024 + (ring + slabs if walks else max(ring, slabs))


def wgmma_element(c: Mapping[str, int | str]) -> int:
    """Bytes of an element of A or B in memory."""
    return {"float": 4, "i8": 1, "e4m3_t": 1, "e5m2_t": 1}.get(str(c.get("A_STORED", c["IN_TYPE"])), 2)


def wgmma_maps(kernel: Kernel) -> tuple[TensorMap, ...]:
    """How contraction_wgmma's tiles are copied: rows of M or N where k is contiguous, else rows of k."""
    found = []
    for operand, rows in (("a", "BLOCK_M"), ("b", "BLOCK_N")):
        across = bool(kernel.value(f"{operand.upper()}_LAYOUT"))
        along_rows = across == (operand == "a")
        element = wgmma_element(kernel.constants)
        fetched = kernel.value("BLOCK_K" if across else rows) // pair(kernel, {"a": "n", "b": "m"}[operand])
        found.append(TensorMap(operand, along_rows, element, fetched, element == 4))
    if kernel.constants.get("STORE_COPIES"):
        found.append(TensorMap("c", False, facts(kernel.dtype("OUT_TYPE")).itemsize, 16))
    return tuple(found)


def pair(kernel: Kernel, axis: str) -> int:
    """Blocks of a cluster along m or n."""
    return 1 + (int(kernel.constants.get("CLUSTER", 0)) == " mn".index(axis))


@dataclass(frozen=True)
class Kernel:
    """A family's source with every constant bound, and how it is launched."""

    family: str
    constants: Constants = field(hash=False)
    resources: Callable[[Mapping[str, int | str]], tuple[int, int]]

    def with_constants(self, **constants: int | str) -> Kernel:
        return replace(self, constants=self.constants | constants)

    def source(self) -> str:
        return bind(flatten(f"{self.family}.cu"), self.constants)

    def dtype(self, macro: str) -> str:
        return next(name for name, token in TOKENS.items() if token == self.constants[macro])

    def accumulator(self) -> str:
        eight = self.family == "contraction_wgmma" and "A_STORED" in self.constants
        return "float22" if eight else self.dtype("ACC_TYPE")

    def value(self, name: str) -> int:
        return int(self.constants[name])

    def math(self) -> str:
        tf32 = self.family == "contraction_wgmma" and self.constants["IN_TYPE"] == "float"
        if tf32 or self.constants.get("MATH_TF32"):
            return "tf32"
        return "3m" if self.constants.get("FORM") == 3 else "ieee"

    def layout(self) -> dict[str, str]:
        axes = {"a": "km", "b": "kn"}
        found = {
            x: axes[x][self.value(f"{x.upper()}_LAYOUT")] if self.constants.get(f"{x.upper()}_UNIT", 1) else "s"
            for x in axes
        }
        found = {x: axis + "*" * int(self.constants.get(f"{x.upper()}_CONJUGATE", 0)) for x, axis in found.items()}
        return found | {"c": "n" if self.value("C_UNIT") else "s"}


SIMT_DEFAULTS: Constants = {
    "MATH_TF32": 0, "BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 8, "THREAD_M": 4, "THREAD_N": 8, "VTHREAD_M": 1,
    "VTHREAD_N": 2, "LANES_M": 4, "FORM": 1, "A_CONJUGATE": 0, "B_CONJUGATE": 0, "STAGES": 2, "PAD": 0, "SPLIT": 0,
    "EPILOGUE_STAGED": 0, "EPILOGUE_CODES": 0, "MIN_BLOCKS": 0,
}  # fmt: skip
MMA_DEFAULTS: Constants = {
    "MATH_TF32": 0, "INSTRUCTION": 0, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "WARP_M": 32, "WARP_N": 32,
    "STAGES": 3, "ASYNC": 1, "SWIZZLE": 1, "SPLIT": 0, "EPILOGUE_STAGED": 1, "EPILOGUE_CODES": 0, "MIN_BLOCKS": 0,
}  # fmt: skip


def simt(dtype: str = "float32", out: str | None = None, *, a: str = "k", b: str = "n", c: str = "n", **more) -> Kernel:
    """A contraction_simt kernel; upper-case keywords are constants."""
    return Kernel("contraction_simt", SIMT_DEFAULTS | class_constants(dtype, out, a, b, c) | more, simt_launch)


def mma(dtype: str = "float16", out: str | None = None, *, a: str = "k", b: str = "n", c: str = "n", **more) -> Kernel:
    """A contraction_mma kernel; upper-case keywords are constants."""
    return Kernel("contraction_mma", MMA_DEFAULTS | class_constants(dtype, out, a, b, c) | more, mma_launch)


WGMMA_DEFAULTS: Constants = {
    "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "STAGES": 3, "CONSUMERS": 1, "SPLIT": 0, "EPILOGUE_STAGED": 1,
    "EPILOGUE_CODES": 0, "MIN_BLOCKS": 1,
}  # fmt: skip


def wgmma(
    dtype: str = "float16", out: str | None = None, *, a: str = "k", b: str = "k", c: str = "n", **more
) -> Kernel:
    """A contraction_wgmma kernel; upper-case keywords are constants."""
    known = {f"{x}_UNIT" for x in "AB"} | {f"{x}_VECTOR" for x in "AB"}
    if dtype in EIGHT_BIT_FLOATS:
        more = {"A_STORED": TOKENS[dtype], "B_STORED": TOKENS[dtype], "BLOCK_K": 128} | more
        dtype, out = "float16", out or "float32"
    own = {name: value for name, value in class_constants(dtype, out, a, b, c).items() if name not in known}
    return Kernel("contraction_wgmma", WGMMA_DEFAULTS | own | more, wgmma_launch)


@dataclass
class Array:
    """Values inside a larger poisoned buffer. `strides` are in elements, batch axes first."""

    values: np.ndarray
    dtype: str
    buffer: np.ndarray
    strides: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, int]:
        """(address, bytes) from the first to the last element: accesses beyond are out of bounds."""
        last = sum((n - 1) * s for n, s in zip(self.values.shape, self.strides, strict=True))
        return self.buffer.ctypes.data, (last + 1) * self.buffer.itemsize if self.values.size else 0

    def view(self, buffer: np.ndarray | None = None) -> np.ndarray:
        buffer = self.buffer if buffer is None else buffer
        strides = tuple(s * buffer.itemsize for s in self.strides)
        return np.lib.stride_tricks.as_strided(buffer, self.values.shape, strides)

    def where(self, broadcast_row: bool = False) -> Strides:
        *batch, row, column = self.strides
        return Strides(tuple(batch), 0 if broadcast_row else row, column)


def poison(dtype: str) -> int:
    return 0x7F if dtype == "int8" else 0xFF


def place(values: np.ndarray, dtype: str, unit: str, axes: str, vector: int) -> Array:
    """`values` at an address aligned to `vector` bytes and no more, rows padded with poison by one vector.

    `axes` names the last two axes and `unit` the one that is contiguous, "s" for neither.
    """
    rows, columns = values.shape[-2:]
    size = facts(dtype).itemsize
    step, each = (1 if unit in axes else 2), max(1, vector // size)
    inner, outer = (rows, columns) if unit == axes[0] else (columns, rows)
    pitch = up(inner * step, each) + each
    entry = outer * pitch
    two = (step, pitch) if unit == axes[0] else (pitch, step)
    batch = [entry * math.prod(values.shape[axis + 1 : -2]) for axis in range(values.ndim - 2)]
    raw = np.full(entry * math.prod(values.shape[:-2]) * size + 256, poison(dtype), np.uint8)
    start = -raw.ctypes.data % 64 + (vector if vector < 16 else 16)
    kind = encode(dtype, np.zeros(1)).dtype
    usable = (len(raw) - start) // size * size
    placed = Array(values, dtype, raw[start : start + usable].view(kind), (*batch, *two))
    placed.view()[...] = encode(dtype, values)
    return placed


@dataclass(frozen=True)
class Case:
    """One problem: extents, the runtime numbers of the Program, and epilogue operations."""

    m: int
    n: int
    k: int
    batch: tuple[int, int, int] = (1, 1, 1)
    split: int = 1
    raster: int = 1
    epilogue: tuple[str, ...] = ()
    integer_steps: int = 0

    def without_products(self) -> Case:
        """Return a case of these outputs whose sums have no terms."""
        return Case(self.m, self.n, 0, split=self.split, epilogue=self.epilogue, integer_steps=self.integer_steps)


class Problem:
    """The arrays of one case for one kernel class; `run` executes, `check` compares the last run."""

    def __init__(self, kernel: Kernel, case: Case, seed: int = 0, vectors: Mapping[str, int] | None = None):
        self.kernel, self.case = kernel, case
        rng = np.random.default_rng(seed)
        layout = {x: axis.removesuffix("*") for x, axis in kernel.layout().items()}
        inner = {"a": "mk", "b": "kn", "c": "mn"}
        stored = {x: f"{x.upper()}_STORED" for x in "ab"}
        types = {x: kernel.dtype(name if name in kernel.constants else "IN_TYPE") for x, name in stored.items()}
        types["c"] = kernel.dtype("OUT_TYPE")
        width = {x: int(kernel.constants.get(f"{x.upper()}_VECTOR", 16)) for x in "abc"} | dict(vectors or {})
        size = {axis: getattr(case, axis) for axis in "mnk"}
        shapes = {x: (*case.batch, *(size[axis] for axis in inner[x])) for x in "abc"}
        self.arrays = {x: place(draw(rng, shapes[x], types[x]), types[x], layout[x], inner[x], width[x]) for x in "abc"}
        self.steps = [self._step(rng, name) for name in case.epilogue]
        self.workload = Workload(
            "matmul", (("batch", math.prod(case.batch)), *size.items()), tuple(types.items()),
            kernel.accumulator(), kernel.math(), tuple(kernel.layout().items()),
            tuple((x, max(width[x], facts(types[x]).itemsize)) for x in "abc"), case.epilogue,
        )  # fmt: skip
        self._expected: tolerance_base.Expected | None = None

    def _step(self, rng: np.random.Generator, name: str) -> tuple[epilogue.Step, Array | None]:
        operation, case = epilogue.OPERATIONS[name], self.case
        if not operation.takes_operand:
            is_complex = facts(self.kernel.dtype("OUT_TYPE")).is_complex and name == "scale"
            return epilogue.Step(name, None, 0.75 - 0.5j if is_complex else 0.75), None
        dtype = {"mask": "int8", "mul": "float32"}.get(name, self.kernel.dtype("OUT_TYPE"))
        shape = (*case.batch, 1 if operation.operand == "n" else case.m, case.n)
        values = rng.integers(0, 2, shape).astype(float) if name == "mask" else draw(rng, shape, dtype)
        vector = max(facts(dtype).itemsize, self.kernel.value("C_VECTOR"))
        return epilogue.Step(name, values, -1.5), place(values, dtype, "n", "mn", vector)

    def _tile(self) -> dict[str, int]:
        """What is counted as one tile: that of a block, or of a cluster."""
        sides = {axis: pair(self.kernel, axis) if axis in "mn" else 1 for axis in "mnk"}
        return {axis: self.kernel.value(f"BLOCK_{axis.upper()}") * side for axis, side in sides.items()}

    def launches(self) -> list[Launch]:
        c, case = self.kernel.constants, self.case
        entries = math.prod(case.batch)
        tile, blocks = self._tile(), pair(self.kernel, "m") * pair(self.kernel, "n")
        tiles = -(-case.m // tile["m"]) * -(-case.n // tile["n"])
        maps = wgmma_maps(self.kernel) if self.kernel.family == "contraction_wgmma" else ()
        walks = int(bool(c.get("PERSISTENT", 0)))
        grid = entries * case.split * tiles * blocks
        found = [Launch(self.kernel.family, grid, *self.kernel.resources(c), maps, walks, cluster=blocks)]
        if self.kernel.value("SPLIT"):
            width = self.kernel.value("C_VECTOR") // facts(self.kernel.dtype("OUT_TYPE")).itemsize
            groups = entries * case.m * -(-case.n // (width if self.kernel.value("C_UNIT") else 1))
            found.append(Launch("contraction_reduce", -(-groups // 256), 256, 0))
        return found

    def run(self, library: Path | None = None, **options) -> Counters:
        """Executes on a poisoned C and workspace; KernelFault where the kernel breaks a rule."""
        case, arrays = self.case, self.arrays
        out = arrays["c"]
        out.buffer.view(np.uint8)[...] = poison(out.dtype)
        accumulators = case.split * math.prod(case.batch) * case.m * up(case.n, 4)
        words = accumulators * facts(self.kernel.dtype("ACC_TYPE")).itemsize if self.kernel.value("SPLIT") else 0
        workspace = np.full(words + 16, 0xFF, np.uint8)
        reads = [arrays["a"], arrays["b"], *(array for _, array in self.steps if array)]
        space = AddressSpace()
        placed = {id(array): space.place(*array.extent, array is out) for array in (*reads, out)}
        base = space.place(up(workspace.ctypes.data, 16), words, True)
        tile = self._tile() | {"split": case.split, "raster": case.raster}
        a, b, c = (placed[id(arrays[x])] for x in "abc")
        geometry = Geometry((case.m, case.n, case.k), case.batch, *(arrays[x].where() for x in "abc"))
        packed = params.pack(
            geometry, params.tiling(tile, geometry), steps=[_packed(*step, placed) for step in self.steps],
            integer_steps=case.integer_steps, pointers=(a, b, c, base),
        )  # fmt: skip
        library = library or build(self.kernel.source())
        return run(library, self.launches(), packed, [each for each in space.buffers if each.bytes], **options)

    def right(self, library: Path | None = None, **options) -> Counters:
        """Assert that a run gives the right result, and return what it counted."""
        counters, verdict = self.run(library, **options), self.check()
        assert verdict.ok, verdict.message
        return counters

    def check(self) -> tolerance_base.Check:
        """Verdict over all outputs; wrong too where anything between the elements of C was written."""
        out = self.arrays["c"]
        if self._expected is None:
            a, b = (self.arrays[x].view() for x in "ab")
            steps = [step for step, _ in self.steps]
            self._expected = matmul.expect(a, b, self.workload, steps, integer_steps=self.case.integer_steps)
        found = tolerance_base.check(out.view(), self._expected)
        around = np.ones(out.buffer.shape, bool)
        out.view(around)[...] = False
        if (out.buffer[around].view(np.uint8) != poison(out.dtype)).any():
            return tolerance_base.Check(False, math.inf, "wrote between the elements of C")
        return found


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if facts(dtype).is_integer:
        span = 128 if dtype == "int8" else 1 << 16
        return rng.integers(-span, span, shape).astype(np.float64)
    if facts(dtype).is_complex:
        return round_to(dtype, rng.standard_normal(shape) + 1j * rng.standard_normal(shape))
    return round_to(dtype, rng.standard_normal(shape))


def _packed(step: epilogue.Step, array: Array | None, placed: dict[int, int]) -> params.Step:
    code = epilogue.OPERATIONS[step.name].code
    if array is None:
        return params.Step(code, step.scalar)
    return params.Step(code, step.scalar, array.dtype, array.where(array.values.shape[-2] == 1), placed[id(array)])
