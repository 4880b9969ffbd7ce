"""Arrays of one workload on a device, and launches over them, for timing and for checks at real sizes.

Values are standard normal (integers over most of their range): data of low entropy draws less power and runs faster
than real data. Values are drawn once per type and repeated with a prime period, so that building hundreds of operand
sets costs copies on the device and nothing on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from gensor_kernels.arrays import DeviceArray, Dtype
from gensor_kernels.devices.device import Code, Device
from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.functions.vendor_call import library_call
from gensor_kernels.families.core.params import Step
from gensor_kernels.operators import operator
from gensor_kernels.operators.declaration.operator import Operand
from gensor_kernels.operators.types.dtypes import encode, facts, join_parts
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.verify.problem import exact_steps

PERIOD = 1_048_573  # random elements per type; a prime, so that rows of a matrix differ
POISON = 0xFF  # a NaN in every floating-point type
SCALARS = {"scale": 0.75, "mask": -1.25}


class Noise:
    """Random elements of each type on a device, drawn once."""

    def __init__(self, device: Device):
        self.device = device
        self._drawn: dict[str, DeviceArray] = {}

    def fill(self, flat: DeviceArray, dtype: str, seed: int, own: DeviceArray | None = None) -> None:
        """Fill a flat array with random elements of `dtype`, or with repetitions of the elements `own`, in order."""
        if own is None and dtype not in self._drawn:
            self._drawn[dtype] = self.device.xp.asarray(_draw(dtype, PERIOD))
        drawn = self._drawn[dtype] if own is None else own
        done, start = 0, 0 if own is not None else seed * 400_009 % drawn.size
        while done < flat.size:
            count = min(drawn.size - start, flat.size - done)
            flat[done : done + count] = drawn[start : start + count]
            done, start = done + count, 0

    def own(self, workload: Workload, operand: Operand) -> DeviceArray:
        """Return elements that the operator draws for an operand's first rows, or None where any are valid.

        All are finite: a NaN of a result says that it was not written.
        """
        key = f"{operand.name} {workload.key()}"
        if key not in self._drawn:
            shape = list(operand.shape)
            for axis in range(len(shape)):
                shape[axis] = min(shape[axis], max(1, PERIOD // max(1, int(np.prod(operand.shape[axis + 1 :])))))
            rng = np.random.Generator(np.random.PCG64(0))
            found = operator(workload.operator).draw(workload, operand.name, rng, tuple(shape))
            finite = None if found is None else np.where(np.isfinite(found), found, 1.0).reshape(-1)
            stored = None if finite is None else encode(workload.dtype[operand.name], finite)
            self._drawn[key] = None if stored is None or not stored.size else self.device.xp.asarray(stored)
        return self._drawn[key]


def _draw(dtype: str, count: int) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(0))
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(np.int8)
    if facts(dtype).is_integer:
        span = 127 if facts(dtype).itemsize == 1 else 1 << 20
        return encode(dtype, rng.integers(-span, span + 1, count).astype(np.float64))
    if facts(dtype).is_complex:
        return encode(dtype, join_parts(rng.standard_normal((count, 2))))
    return encode(dtype, rng.standard_normal(count))


@dataclass(frozen=True)
class Block:
    """An array in a byte buffer on a device, poison around it; `strides` in elements, bfloat16 as its bits."""

    memory: DeviceArray
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def storage(self) -> Dtype:
        """The NumPy dtype of storage."""
        return np.dtype(np.int8 if self.dtype == "bool" else encode(self.dtype, np.zeros(1)).dtype)

    @property
    def nbytes(self) -> int:
        """Bytes from the first to the last element."""
        reach = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        return (reach + 1) * self.storage.itemsize

    @property
    def flat(self) -> DeviceArray:
        """All elements from the first to the last, one-dimensional."""
        return self.memory[self.start : self.start + self.nbytes].view(self.storage)

    def view(self, xp: ModuleType) -> DeviceArray:
        """Return the array in its storage type."""
        size = self.storage.itemsize
        return xp.lib.stride_tricks.as_strided(self.flat, self.shape, tuple(s * size for s in self.strides))

    def around(self) -> tuple[DeviceArray, DeviceArray]:
        """Return the bytes before and after the array."""
        return self.memory[: self.start], self.memory[self.start + self.nbytes :]


class Operands:
    """Inputs, output and epilogue operands of one workload on a device.

    Each array is surrounded by `guard` poisoned bytes. With `exact`, an array of an alignment class below 16 bytes is
    aligned to that and no more. The output holds poison until a kernel writes it.
    """

    def __init__(
        self, device: Device, workload: Workload, noise: Noise, seed: int = 0, guard: int = 0, exact: bool = False
    ):
        self.device, self.workload, self.noise = device, workload, noise
        self.seed, self.guard = seed, guard
        self.operator = operator(workload.operator)
        self.blocks: dict[str, Block] = {}
        *inputs, output = self.operator.operands(workload)
        for each in (*inputs, output):
            align = workload.align[each.name] if exact else 16
            kind = "bool" if each.boolean else workload.dtype[each.name]
            own = None if each is output else noise.own(workload, each)
            self.blocks[each.name] = self._block(each.shape, each.strides(), kind, align, each is not output, own)
        self.out = self.blocks[output.name]
        self.steps = [self._step(name) for name in workload.epilogue]
        self.integer_steps = exact_steps(workload, self.out.dtype)

    def _block(
        self,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: str,
        align: int,
        fill: bool = True,
        own: DeviceArray | None = None,
    ) -> Block:
        block = Block(None, 0, shape, strides, dtype)
        memory = self.device.xp.full(block.nbytes + 2 * self.guard + 32, POISON, np.uint8)
        first = self.device.pointer(memory) + self.guard
        start = self.guard + -first % 16 + (align if align < 16 else 0)
        block = Block(memory, start, shape, strides, dtype)
        if fill:
            self.noise.fill(block.flat, dtype, self.seed, own)
            self.seed += 1
        return block

    def _step(self, name: str) -> tuple[str, Block | None, float]:
        operation = OPERATIONS[name]
        scalar = SCALARS.get(name, 1.0)
        if not operation.takes_operand:
            return name, None, scalar
        shape, strides = self.out.shape, Operand(name, self.out.shape, tuple(range(len(self.out.shape)))).strides()
        dtype = "bool" if name == "mask" else self.out.dtype
        if operation.operand == "n":
            shape = self.operator.vector_shape(shape)
            strides = tuple(0 if extent == 1 else s for extent, s in zip(shape, strides, strict=True))
        return name, self._block(shape, strides, dtype, 16), scalar

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(block.nbytes for block in self.operands) + self.out.nbytes

    @property
    def reads(self) -> list[Block]:
        """Every array that a kernel reads."""
        written = [self.blocks[name] for name in self.operator.written]
        return [block for block in self.operands if not any(block is each for each in written)]

    @property
    def operands(self) -> list[Block]:
        """Every array of a launch but the output, in the order of its arguments."""
        return [*self.inputs, *(block for _, block, _ in self.steps if block is not None)]

    @property
    def inputs(self) -> list[Block]:
        """The operator's own inputs, without epilogue operands."""
        return [block for block in self.blocks.values() if block is not self.out]

    def address(self, block: Block) -> int:
        """Return the address of a block's first element."""
        return self.device.pointer(block.memory) + block.start

    def params(self, kernel: Candidate, workspace: int) -> bytes:
        """Return the packed Params of one launch."""
        strides = {name: block.strides for name, block in self.blocks.items()}
        addresses = [self.address(each) for each in (*self.inputs, self.out)]
        steps = [self._pack(*step) for step in self.steps]
        return kernel.params(self.workload, strides, addresses, workspace, steps, self.integer_steps)

    def _pack(self, name: str, block: Block | None, scalar: float) -> Step:
        code = OPERATIONS[name].code
        if block is None:
            return Step(code, scalar)
        where = self.operator.output(self.workload, block.strides)
        return Step(code, scalar, block.dtype, where, self.address(block))

    def launcher(
        self, kernel: Candidate, code: Code, change: Callable[[bytes], bytes] = lambda packed: packed
    ) -> Callable[[], None]:
        """Return a function that enqueues the kernel; `change` may damage Params, to test that checks notice."""
        device, family = self.device, kernel.family
        launch = device.load(code, family.launches(kernel.program, self.workload))
        size, zero = family.workspace(kernel.program, self.workload)
        owner, address = device.workspace(size, zero) if size else (None, 0)
        packed = change(self.params(kernel, address))
        touched = (self.out.flat, *(block.flat for block in self.operands))

        def call() -> None:
            arguments = device.local.arguments
            arguments[0][:] = packed
            launch(arguments, touched, (), owner)

        return call

    def vendor(self) -> Callable[[], object] | None:
        """Return a function that makes the equivalent CuPy call, or None if CuPy has none."""
        arrays = {name: self.typed(block) for name, block in self.blocks.items()}
        steps = [
            Operation(name, None if block is None else self.typed(block), scalar) for name, block, scalar in self.steps
        ]
        return library_call(self.device, self.workload, arrays, steps)

    def typed(self, block: Block) -> DeviceArray:
        """Return the array as callers have it: bfloat16 as ml_dtypes' type."""
        array = block.view(self.device.xp)
        if block.dtype == "bfloat16":
            import ml_dtypes

            array = array.view(ml_dtypes.bfloat16)
        return array
