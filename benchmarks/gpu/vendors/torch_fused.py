"""Products with a gate, a norm or a prologue by PyTorch, as a user writes them: the product, and element-wise calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gensor_kernels.operators import operator
from gensor_kernels.operators.declaration.prologue import steps_of, vectors_of
from gensor_kernels.operators.types.workload import Workload

from .torch_windows import NoCallError

Main = tuple[Callable[..., Any], int]


def element_wise(torch: Any, name: str, value: Any, extra: Any, scalar: complex, out: Any) -> Any:
    """One operation of an epilogue or a prologue."""
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


def gated(torch: Any, workload: Workload, steps: list[str]) -> Main:
    """One product with both matrices."""
    functional, declared = torch.nn.functional, operator(workload.operator)
    name: str = declared.gate  # type: ignore[attr-defined]
    gates: dict[str, Callable[[Any], Any]] = {"gelu_tanh": lambda v: functional.gelu(v, approximate="tanh")}
    gate = gates.get(name) or getattr(functional, name)

    def core(a: Any, b: Any, d: Any = None) -> Any:
        both = torch.matmul(a, b.flatten(2))
        both = both if d is None else both + d.flatten()
        first, second = both.chunk(2, dim=-1)
        return gate(first) * second

    return core, 0


def normed(torch: Any, workload: Workload, steps: list[str]) -> Main:
    """The sums in front of the norm, and the norm."""
    functional, shape, before = torch.nn.functional, (workload.size["n"],), workload.size["before"]
    declared: Any = operator(workload.operator)
    if any(step not in ("bias", "add") for step in steps[:before]):
        raise NoCallError("only sums are written here in front of a norm")
    from gensor_kernels.operators.rows.norms import VERIFIED_EPS

    norm = functional.layer_norm if declared.norm == "layernorm" else functional.rms_norm

    def core(a: Any, b: Any, *extras: Any) -> Any:
        value = torch.matmul(a, b)
        for extra in extras:
            value = value + extra
        return norm(value, shape, eps=VERIFIED_EPS)

    return core, before


def prepared(main: Callable[[Any, Workload, list[str]], Main]) -> Callable[[Any, Workload, list[str]], Main]:
    """A product that `main` computes, behind element-wise calls in the operands' type."""

    def made(torch: Any, workload: Workload, steps: list[str]) -> Main:
        core, taken = main(torch, workload, steps)

        def function(x: Any, w: Any, *more: Any) -> Any:
            vectors, rest = more[: vectors_of(workload.prologue)], more[vectors_of(workload.prologue) :]
            kind = x.dtype
            for step in steps_of(workload.prologue, vectors):
                x = element_wise(torch, step.name, x, step.operand, step.scalar, kind)
            return core(x.to(kind), w, *rest)

        return function, taken

    return made
