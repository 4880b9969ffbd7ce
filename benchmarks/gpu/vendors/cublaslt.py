"""Matrix products by cuBLASLt, by the fastest of eight proposals: the best that NVIDIA's library offers.

The library is the one that CuPy has loaded. cuBLASLt stores columns; a product of rows is the product of the transposed
operands in the other order. Products of 8-bit floats have scales of 1, and are summed as accurately as it can: without
its "fast accumulation", like ours. Constants come from cublasLt.h and library_types.h (CUDA 12 and 13).
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gensor_kernels.errors import ToolMissingError
from gensor_tuner.measure.operands import Block, Operands

PROPOSALS = 8
WORKSPACE_BYTES = 64 << 20  # split products on Hopper need 32 MiB
TRIES, REPEATED = 3, 5
SONAMES = ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so")

_TYPES = {"float32": 0, "float64": 1, "float16": 2, "int8": 3, "int32": 10, "bfloat16": 14}
_TYPES |= {"float8_e4m3fn": 28, "float8_e5m2": 29}
_COMPUTE = {"float32": (68, "float32"), "float64": (70, "float64"), "int32": (72, "int32")}  # compute, alpha
_TF32 = 77
_TRANSPOSED_A, _TRANSPOSED_B, _EPILOGUE, _BIAS = 3, 4, 7, 8
_BATCH, _BATCH_STRIDE, _MOST_WORKSPACE = 5, 6, 1
_EPILOGUES = {(): 1, ("relu",): 2, ("bias",): 4, ("bias", "relu"): 6, ("gelu_tanh",): 32, ("bias", "gelu_tanh"): 36}


class Algorithm(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class NoCallError(Exception):
    """cuBLASLt has no such product."""


class Owned(ctypes.c_void_p):
    """A descriptor, destroyed with the last reference to it."""

    destroy: Callable[[Owned], Any] | None = None

    def __del__(self) -> None:
        if self.destroy is not None and self:
            self.destroy(self)


class CublasLt:
    """Calls of cuBLASLt for workloads of `matmul`; ToolMissingError where the library is missing.

    `seconds(call)` times a few calls; `stream()` is the address of the stream to launch on.
    """

    def __init__(
        self,
        seconds: Callable[[Sequence[Callable[[], Any]]], float],
        stream: Callable[[], int] = lambda: 0,
        path: str | None = None,
    ):
        self._seconds, self._stream = seconds, stream
        self._library = _load(path)
        self._handle = ctypes.c_void_p()
        self._ask("cublasLtCreate", ctypes.byref(self._handle))
        self._chosen: dict[str, int] = {}  # the fastest proposal by workload

    def call(self, operands: Operands) -> Callable[[], Any] | None:
        """Return the fastest proposal for these operands, or None where there is none."""
        try:
            calls = self._calls(operands)
        except NoCallError:
            return None
        key = operands.workload.key()
        if key not in self._chosen:
            self._chosen[key] = min(range(len(calls)), key=lambda each: self._best(calls[each]))
        return calls[min(self._chosen[key], len(calls) - 1)]

    def _best(self, call: Callable[[], Any]) -> float:
        call()
        return min(self._seconds([call] * REPEATED) for _ in range(TRIES))

    def _calls(self, operands: Operands) -> list[Callable[[], Any]]:
        workload = operands.workload
        made = self._product(operands)
        preference = self._created("MatmulPreference")
        self._set("MatmulPreference", preference, _MOST_WORKSPACE, ctypes.c_uint64(WORKSPACE_BYTES))
        found, count = (Algorithm * PROPOSALS)(), ctypes.c_int()
        status = self._library.cublasLtMatmulAlgoGetHeuristic(
            self._handle, *made.described, preference, PROPOSALS, found, ctypes.byref(count)
        )
        good = [each for each in found[: count.value] if each.state == 0]
        if status or not good:
            raise NoCallError(f"no proposal for {workload.key()} (cublasStatus_t {status})")
        owner, address = operands.device.workspace(max(1, max(each.workspace for each in good)), False)
        out = operands.typed(operands.out)
        return [self._launcher(made, each, (owner, address), out) for each in good]

    def _launcher(self, made: _Product, proposal: Algorithm, workspace: tuple[Any, int], out: Any) -> Callable[[], Any]:
        description, a, b, c, _ = made.described
        alpha, beta = made.scalars
        launch, handle, stream = self._library.cublasLtMatmul, self._handle, self._stream

        def call() -> Any:
            status = launch(
                *(handle, description, ctypes.byref(alpha), made.a, a, made.b, b, ctypes.byref(beta)),
                *(made.c, c, made.c, c, ctypes.byref(proposal), ctypes.c_void_p(workspace[1])),
                *(ctypes.c_size_t(proposal.workspace), ctypes.c_void_p(stream())),
            )
            if status:
                raise RuntimeError(f"cublasLtMatmul: cublasStatus_t {status}")
            return out

        return call

    def _product(self, operands: Operands) -> _Product:
        workload = operands.workload
        epilogue, compute = _EPILOGUES.get(workload.epilogue), _COMPUTE.get(workload.accumulator)
        types = {name: block.dtype for name, block in operands.blocks.items()}
        if workload.operator != "matmul" or not set(types.values()) <= _TYPES.keys() or not (epilogue and compute):
            raise NoCallError(workload.key())
        kind, scale = (_TF32 if workload.math == "tf32" else compute[0]), compute[1]
        description = self._created("MatmulDesc", kind, _TYPES[scale])
        # Our rows of C are columns of cuBLASLt: B comes first, and an operand stored by rows is not transposed.
        sides = [_Side.of(operands.blocks[name]) for name in ("b", "a", "c")]
        if sides[2].transposed:
            raise NoCallError("C is stored by columns")
        for attribute, side in zip((_TRANSPOSED_A, _TRANSPOSED_B), sides[:2], strict=True):
            self._set("MatmulDesc", description, attribute, ctypes.c_int(side.transposed))
        self._set("MatmulDesc", description, _EPILOGUE, ctypes.c_uint32(epilogue))
        if "bias" in workload.epilogue:
            address = operands.address(operands.steps[0][1])  # type: ignore[arg-type]
            self._set("MatmulDesc", description, _BIAS, ctypes.c_void_p(address))
        layouts = [self._layout(side, _TYPES[types[name]]) for side, name in zip(sides, "bac", strict=True)]
        of = {"float32": ctypes.c_float, "float64": ctypes.c_double, "int32": ctypes.c_int32}[scale]
        addresses = [ctypes.c_void_p(operands.address(operands.blocks[name])) for name in "bac"]
        return _Product((description, *layouts, layouts[2]), addresses, (of(1), of(0)))

    def _layout(self, side: _Side, kind: int) -> Owned:
        sizes = ctypes.c_uint64(side.inner), ctypes.c_uint64(side.outer), ctypes.c_int64(side.apart)
        layout = self._created("MatrixLayout", kind, *sizes)
        self._set("MatrixLayout", layout, _BATCH, ctypes.c_int32(side.batch))
        self._set("MatrixLayout", layout, _BATCH_STRIDE, ctypes.c_int64(side.batch_stride))
        return layout

    def _created(self, kind: str, *arguments: Any) -> Owned:
        made = Owned()
        self._ask(f"cublasLt{kind}Create", ctypes.byref(made), *arguments)
        made.destroy = getattr(self._library, f"cublasLt{kind}Destroy")
        return made

    def _set(self, kind: str, what: Owned, attribute: int, value: ctypes._SimpleCData) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._ask(f"cublasLt{kind}SetAttribute", what, attribute, ctypes.byref(value), size)

    def _ask(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise NoCallError(f"{name}: cublasStatus_t {status}")


class _Product:
    """A product's descriptors (operation, A, B, C, D), addresses, and alpha and beta."""

    def __init__(self, described: tuple[Any, ...], addresses: Sequence[Any], scalars: tuple[Any, Any]):
        self.described, self.scalars = described, scalars
        self.a, self.b, self.c = addresses


class _Side:
    """The layout of a matrix, as columns of `inner` adjacent elements each."""

    def __init__(self, inner: int, outer: int, apart: int, transposed: bool, batch: int, batch_stride: int):
        self.inner, self.outer, self.apart, self.transposed = inner, outer, apart, transposed
        self.batch, self.batch_stride = batch, batch_stride

    @classmethod
    def of(cls, block: Block) -> _Side:
        """Return the layout of a block. Raises NoCallError where neither axis has stride 1, or batches have no single
        stride."""
        *batch, rows, columns = block.shape
        *apart, across, along = block.strides
        count = int(np.prod(batch, dtype=np.int64))
        own = [(extent, stride) for extent, stride in zip(batch, apart, strict=True) if extent > 1]
        for (_, outer), (extent, inner) in itertools.pairwise(own):
            if outer != inner * extent:
                raise NoCallError("batches lie apart unevenly")
        stride = own[-1][1] if own else 0
        if along == 1 or columns == 1:
            return cls(columns, rows, max(across, columns), False, count, stride)
        if across == 1 or rows == 1:
            return cls(rows, columns, max(along, rows), True, count, stride)
        raise NoCallError("no axis of an operand has stride 1")


def _load(path: str | None) -> Any:
    """Return the library that the process has loaded, or that of an installed wheel or toolkit, or the newest."""
    for name in [path] if path else [*_mapped_paths(), *_installed_path(), *SONAMES]:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            missing = str(error)
    raise ToolMissingError(f"cuBLASLt: {missing}")


def _mapped_paths() -> list[str]:
    try:
        return sorted(set(re.findall(r"/\S*libcublasLt\.so\S*", Path("/proc/self/maps").read_text(encoding="utf-8"))))
    except OSError:
        return []


def _installed_path() -> list[str]:
    """Return the path of the library in a wheel or a toolkit, where CUDA's own finder knows it."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = load_nvidia_dynamic_lib("cublasLt").abs_path
    except (ImportError, RuntimeError):
        return []
    return [found] if found else []
