"""The same Workload by PyTorch: cuBLAS, cuDNN and its own kernels, eager or compiled (Triton where it is installed).

Every function takes tensors in the axes that an operator declares and returns its result in them: views, no copies.
Arguments of torch.nn.functional (a bias, a norm's weight) are used; the rest of an epilogue follows as element-wise
calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.operators import MODULES, operator
from gensor_kernels.operators.declaration.prologue import steps_of, vectors_of
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.measure.operands import Block, Operands

from . import pytorch_attention, pytorch_windows
from .pytorch_windows import NoCallError

if TYPE_CHECKING:
    from torch import Tensor, dtype

Function = Callable[..., Any]
Main = tuple[Function, int]  # the core of a call, and how many steps of the epilogue it takes itself


class Torch:
    """PyTorch as a vendor. `device`: "cuda", or "cpu" in a rehearsal.

    Raises ImportError where it is not installed, RuntimeError where it reaches no GPU although it should.
    """

    def __init__(self, emulated: bool):
        import torch

        if not emulated and not torch.cuda.is_available():
            raise RuntimeError("PyTorch is installed without CUDA, or reaches no GPU")
        self.torch, self.emulated = torch, emulated
        self._made: dict[str, Function] = {}  # the function of the last workload, compiled
        torch.backends.cudnn.benchmark = True
        # The accumulator of kernels here: float32 all the way.
        for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
            setattr(torch.backends.cuda.matmul, name, False)

    def call(self, operands: Operands, compiled: bool = False, backend: str = "") -> Callable[[], Any] | None:
        """Return the call for these operands, of attention by a `backend` in BACKENDS, or None where PyTorch has none.
        Raises PyTorch's error for operands that it refuses."""
        torch, workload = self.torch, operands.workload
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = workload.math == "tf32"
        try:
            made = self._compiled(operands) if compiled else self.function(operands, backend)
        except NoCallError:
            return None
        arrays = [self.tensor(block) for block in operands.inputs]
        extras = [None if block is None else self.tensor(block) for _, block, _ in operands.steps]
        made(*arrays, *extras)  # errors of refused operands come up here
        return lambda: made(*arrays, *extras)

    def _compiled(self, operands: Operands) -> Function:
        """Compile by TorchInductor: its templates and Triton are timed against cuBLAS, without CUDA graphs, which would
        copy operands. A workload is compiled once, because its operand sets differ in addresses only."""
        key = operands.workload.key()
        if key not in self._made:
            self.torch._dynamo.reset()
            how = {"backend": "eager"} if self.emulated else {"mode": "max-autotune-no-cudagraphs"}
            self._made = {key: self.torch.compile(self.function(operands), dynamic=False, **how)}
        return self._made[key]

    def tensor(self, block: Block) -> Tensor:
        """Return the same memory as a tensor; a boolean operand as a new tensor of booleans."""
        array = block.view(block_library(block))
        if block.dtype == "bfloat16":
            array = array.view(np.int16)
        found = self.torch.from_numpy(array) if isinstance(array, np.ndarray) else self.torch.from_dlpack(array)
        if block.dtype == "bfloat16" or block.dtype in EIGHT_BIT_FLOATS:  # held as its bits
            found = found.view(getattr(self.torch, block.dtype))
        return found != 0 if block.dtype == "bool" else found

    def wide(self, result: Tensor) -> np.ndarray | Tensor:
        """Return a result as an array of the device's library, float64 or complex128."""
        wide = result.to(self.torch.complex128 if result.is_complex() else self.torch.float64)
        return wide.resolve_conj().numpy() if self.emulated else wide.resolve_conj()

    def function(self, operands: Operands, backend: str = "") -> Function:
        """Return a function of the inputs and of the epilogue's operands; NoCallError where there is none."""
        workload = operands.workload
        inputs = len(operands.inputs)
        main = BACKENDS[backend] if backend else MAIN.get(MODULES.get(workload.operator, ""))
        if main is None:
            raise NoCallError(workload.operator)
        core, taken = main(self.torch, workload, [name for name, _, _ in operands.steps])
        out = getattr(self.torch, workload.dtype[operands.operator.names[-1]])
        shape = operands.out.shape
        rest = operands.steps[taken:]

        def function(*tensors: Tensor) -> Tensor:
            given = tensors[inputs:]
            value = core(*tensors[:inputs], *given[:taken]).reshape(shape)
            for (name, _, scalar), extra in zip(rest, given[taken:], strict=True):
                value = element_wise(self.torch, name, value, extra, scalar, out)
            return value.to(out)

        return function


def block_library(block: Block) -> ModuleType:
    """Return NumPy or CuPy, the owner of a block's memory."""
    import sys

    return sys.modules[type(block.memory).__module__.partition(".")[0]]


def element_wise(
    torch: ModuleType, name: str, value: Tensor, extra: Tensor | None, scalar: complex, out: dtype
) -> Tensor:
    """Apply one operation of an epilogue or a prologue."""
    functional = torch.nn.functional
    if name in ("bias", "add"):
        return value + extra
    if name == "mul":
        return value * extra
    if name == "scale":
        return value * scalar
    if name == "mask":
        return torch.where(extra, value, scalar)
    if name == "cast":
        return value.to(out)
    if name == "gelu_tanh":
        return functional.gelu(value, approximate="tanh")
    return getattr(torch if name in ("tanh", "sigmoid") else functional, name)(value)


def gated(torch: ModuleType, workload: Workload, steps: list[str]) -> Main:
    """Return one product with both matrices."""
    functional, declared = torch.nn.functional, operator(workload.operator)
    name: str = declared.gate  # type: ignore[attr-defined]
    gates: dict[str, Callable[[Any], Any]] = {"gelu_tanh": lambda v: functional.gelu(v, approximate="tanh")}
    gate = gates.get(name) or getattr(functional, name)

    def core(a: Tensor, b: Tensor, d: Tensor | None = None) -> Tensor:
        both = torch.matmul(a, b.flatten(2))
        both = both if d is None else both + d.flatten()
        first, second = both.chunk(2, dim=-1)
        return gate(first) * second

    return core, 0


def normed(torch: ModuleType, workload: Workload, steps: list[str]) -> Main:
    """Return the product, the sums before the norm, and the norm."""
    functional, shape, before = torch.nn.functional, (workload.size["n"],), workload.size["before"]
    declared: Any = operator(workload.operator)
    if any(step not in ("bias", "add") for step in steps[:before]):
        raise NoCallError("only sums are written here in front of a norm")
    from gensor_kernels.operators.rows.norms import VERIFIED_EPS

    norm = functional.layer_norm if declared.norm == "layernorm" else functional.rms_norm

    def core(a: Tensor, b: Tensor, *extras: Tensor) -> Tensor:
        value = torch.matmul(a, b)
        for extra in extras:
            value = value + extra
        return norm(value, shape, eps=VERIFIED_EPS)

    return core, before


def prepared(main: Callable[[Any, Workload, list[str]], Main]) -> Callable[[Any, Workload, list[str]], Main]:
    """Return a product of `main` after element-wise calls in the operands' type."""

    def made(torch: ModuleType, workload: Workload, steps: list[str]) -> Main:
        core, taken = main(torch, workload, steps)

        def function(x: Tensor, w: Tensor, *more: Tensor) -> Tensor:
            vectors, rest = more[: vectors_of(workload.prologue)], more[vectors_of(workload.prologue) :]
            kind = x.dtype
            for step in steps_of(workload.prologue, vectors):
                x = element_wise(torch, step.name, x, step.operand, step.scalar, kind)
            return core(x.to(kind), w, *rest)

        return function, taken

    return made


# ---- the core of each kind of operator


def _matmul(torch: ModuleType, workload: Workload, steps: list[str]) -> Main:
    if {workload.dtype["a"], workload.dtype["b"]} <= set(EIGHT_BIT_FLOATS):
        return _eight_bit(torch, workload), 0
    if workload.dtype["a"] != workload.dtype["b"]:
        raise NoCallError("PyTorch multiplies no such types as they are")
    if workload.dtype["a"] == "int8":
        if workload.size["batch"] > 1:
            raise NoCallError("torch._int_mm has no batch")
        return lambda a, b: torch._int_mm(a[0], b[0]), 0
    flags = workload.conjugated

    def given(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a.conj() if flags["a"] else a, b.conj() if flags["b"] else b

    if workload.size["batch"] == 1:
        if steps[:1] == ["bias"] and not workload.is_complex:
            return lambda a, b, bias: torch.addmm(bias[0], *(x[0] for x in given(a, b))), 1
        return lambda a, b: torch.matmul(*(x[0] for x in given(a, b))), 0
    return lambda a, b: torch.matmul(*given(a, b)), 0


def _eight_bit(torch: ModuleType, workload: Workload) -> Function:
    """Return the product of 8-bit floats with scales of 1, summed as accurately as PyTorch can: cuBLASLt's."""
    if workload.size["batch"] > 1 or workload.dtype["c"] in EIGHT_BIT_FLOATS:
        raise NoCallError("torch._scaled_mm has no batch; its 8-bit results take a scale")
    kind, one = getattr(torch, workload.dtype["c"]), list[Any]()

    def product(a: Tensor, b: Tensor) -> Tensor:
        if not one:
            one.append(torch.ones((), device=a.device))
        found: Tensor = torch._scaled_mm(a[0], b[0], *one, *one, out_dtype=kind)
        return found

    return product


def _reduction(torch: ModuleType, workload: Workload, steps: list[str]) -> Main:
    dims, name = (3, 4, 5), workload.operator
    ddof = workload.size.get("ddof", 0)
    functions: dict[str, Function] = {
        "reduce_sum": lambda x: x.sum(dims),
        "reduce_mean": lambda x: x.mean(dims),
        "reduce_max": lambda x: x.amax(dims),
        "reduce_min": lambda x: x.amin(dims),
        "reduce_prod": lambda x: x.flatten(3).prod(3),
        "argmax": lambda x: x.flatten(3).argmax(3),
        "argmin": lambda x: x.flatten(3).argmin(3),
        "l2_norm": lambda x: torch.linalg.vector_norm(x, dim=dims),
        "reduce_var": lambda x: torch.var(x, dims, correction=ddof),
        "logsumexp": lambda x: torch.logsumexp(x, dims),
    }
    if name not in functions:
        raise NoCallError(name)
    return lambda x: functions[name](x).transpose(1, 2), 0


def _softmax(torch: ModuleType, workload: Workload, steps: list[str]) -> Main:
    function = getattr(torch.nn.functional, workload.operator)
    return lambda x: function(x, -1), 0


def _scan(torch: ModuleType, workload: Workload, steps: list[str]) -> Main:
    function = getattr(torch, workload.operator)
    return lambda x: function(x, -1), 0


def _norm(torch: ModuleType, workload: Workload, steps: list[str]) -> Main:
    functional, shape = torch.nn.functional, (workload.size["k"],)
    given: Any = operator(workload.operator)
    vectors = operands_are_vectors(workload)
    if workload.operator == "rmsnorm":
        if steps[:1] == ["mul"] and vectors:
            return lambda x, w: functional.rms_norm(x, shape, w.reshape(shape), given.value), 1
        return lambda x: functional.rms_norm(x, shape, None, given.value), 0
    if steps[:2] == ["mul", "bias"] and vectors:
        return lambda x, w, b: functional.layer_norm(x, shape, w.reshape(shape), b.reshape(shape), given.value), 2
    return lambda x: functional.layer_norm(x, shape, None, None, given.value), 0


def operands_are_vectors(workload: Workload) -> bool:
    """Return whether a norm's `mul` and `bias` have one element per element of a row: then they are weight and bias."""
    from gensor_kernels.operators.types.epilogue import OPERATIONS

    size = workload.size
    rows = math.prod(size[axis] for axis in ("batch", "m", "n"))
    return rows == 1 or all(OPERATIONS[name].operand == "n" for name in workload.epilogue[:2])


def _elementwise(torch: ModuleType, workload: Workload, steps: list[str]) -> Main:
    return lambda x: x, 0


MAIN: dict[str, Callable[[Any, Workload, list[str]], Main]] = {
    "products.matmul": _matmul,
    "rows.reductions": _reduction,
    "rows.softmax": _softmax,
    "rows.scans": _scan,
    "rows.norms": _norm,
    "rows.elementwise": _elementwise,
    "attention.attention": pytorch_attention.choose,
    "products.gated": gated,
    "products.normed": normed,
    "products.matmul_prologue": prepared(_matmul),
    "windows.conv_prologue": prepared(pytorch_windows.convolution),
    "windows.conv": pytorch_windows.convolution,
    "windows.depthwise": pytorch_windows.depthwise,
    "windows.depthwise_prologue": prepared(pytorch_windows.depthwise),
    "windows.pooling": pytorch_windows.pooling,
}

#: Attention by one of PyTorch's backends.
BACKENDS: dict[str, Callable[[Any, Workload, list[str]], Main]] = {
    "flash": pytorch_attention.flash,
    "cudnn": pytorch_attention.cudnn,
}
