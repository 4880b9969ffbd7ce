"""Validation of Workloads, classes and Programs from other people's files: exactly what this version writes.

All three raise one of `gensor_kernels.errors.MALFORMED` for anything else.
"""

from __future__ import annotations

import json
from collections.abc import Container
from functools import lru_cache

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import Workload

from .core.program import Program
from .registry import FAMILIES, program_from_json

LARGEST_EXTENT = 2**31 - 1


def workload_of(text: str) -> Workload:
    """Return the Workload of a key, which is exactly the text that it is written as, of existing axes and operands."""
    workload = Workload.from_json(text)
    if workload.key() != text:
        raise ValueError("'key' is not in canonical form")
    return _validate(workload)


def samples_of(text: str) -> tuple[Workload, ...]:
    """Return Workloads of a class: with large sizes first, then with one row and with one column, because some families
    serve few of them only."""
    workload = class_of(text)
    return workload, *(_sized(workload, **{axis: 1}) for axis in "mn")


def class_of(text: str) -> Workload:
    """Return the Workload of a class at some size."""
    body = json.loads(text)
    declared = operator(body["operator"])
    workload = _sized(Workload(**body, sizes=declared.smallest))
    if workload.class_key() != text:
        raise ValueError("'class_key' is not in canonical form")
    return _validate(workload)


def _sized(workload: Workload, **less: int) -> Workload:
    """Return the Workload of a class with sizes large enough for every Program, except the given sizes."""
    try:
        return operator(workload.operator).resize(workload, {"batch": 1, "m": 4096, "n": 4096, "k": 4096} | less)
    except NotImplementedError:  # windows that slide: other coordinates that depend on sizes are in Family.own
        return workload


def _validate(workload: Workload) -> Workload:
    """Return the Workload, where it has the sizes, operands and layouts of its operator."""
    declared = operator(workload.operator)
    if not all(type(extent) is int and extent <= LARGEST_EXTENT for _, extent in workload.sizes):
        raise ValueError(f"a size is no integer up to {LARGEST_EXTENT}")
    wanted = dict(declared.smallest)
    if set(workload.size) != set(wanted):
        raise ValueError(f"a {workload.operator} has the sizes {', '.join(wanted)}")
    if set(workload.dtype) != set(declared.names):
        raise ValueError(f"a {workload.operator} has the operands {', '.join(sorted(declared.names))}")
    declared.operands(workload)  # ValueError for a layout that is none
    return workload


def program_of(family_name: str, abi: int, class_key: str, text: str, arch_name: str) -> Program:
    """Return the Program of a kernel's row: of that family, with values that it has for some Workload of the class."""
    family = FAMILIES.get(family_name)
    current = family is not None and abi == family.abi
    program = program_from_json(text) if current else Program.from_json(text, None)
    if program.to_json() != text or program.family != family_name:
        raise ValueError("'program' is not in canonical form, or of another family")
    if family is None:
        raise ValueError(f"'family' is not one of {', '.join(FAMILIES)}")
    workloads = samples_of(class_key)
    if not current:
        return program  # the meaning of its integers is not known here; it is never launched
    possible = _possible(family_name, workloads, arch_name)
    wrong = [f"{name}={value}" for name, value in program.values if value not in possible[name]]
    if wrong:
        raise ValueError(f"'program' has values that {family_name} does not: {', '.join(wrong)[:200]}")
    return program


@lru_cache(maxsize=64)
def _possible(family_name: str, workloads: tuple[Workload, ...], arch_name: str) -> dict[str, Container[int]]:
    """Return the values of each coordinate of a family, over Workloads of a class."""
    family, arch = FAMILIES[family_name], lookup(arch_name)
    possible: dict[str, set[int]] = {}
    fused = () if workloads[0].program else (workloads[0].with_epilogue(("scale",)),)
    for each in (*workloads, *fused):
        for coordinate in family.coordinates(each, arch):
            possible.setdefault(coordinate.name, set()).update(coordinate.values)
    return possible | dict(family.own)
