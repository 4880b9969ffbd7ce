"""Kernel Tuner's input files, T1: JSON with a configuration space and a kernel's specification.

The format is that of the auto-tuning community's schema (https://github.com/odgaard/TuningSchema) as Kernel Tuner reads
it. Sizes are the numbers of ProblemSize, under the names `problem_size_x`, `problem_size_y` and `problem_size_z`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gensor_kernels.errors import ConfigError

from .description import Argument, In, InOut, Out, Scalar
from .kernel import Kernel

_AXES = ("X", "Y", "Z")
SIZES = tuple(f"problem_size_{axis.lower()}" for axis in _AXES)
_TYPES = {
    **{"float": "f4", "double": "f8", "half": "f2", "char": "i1", "uchar": "u1", "short": "i2", "int": "i4"},
    **{"uint": "u4", "unsigned int": "u4", "long": "i8", "int32": "i4", "uint32": "u4", "int64": "i8", "bool": "?"},
}
_ROLES: dict[str, Callable[..., Argument]] = {"ReadOnly": In, "WriteOnly": Out, "ReadWrite": InOut}


def from_t1(path: str | Path) -> Kernel:
    """Read a kernel from a T1 file.

    Parameters
    ----------
    path : str or Path
        The JSON file; KernelFile is relative to it.

    Returns
    -------
    Kernel
        Its `sizes` are problem_size_x, and _y and _z where the file gives them.

    Raises
    ------
    ConfigError
        For a file that is no T1 of a CUDA kernel, naming the entry.
    """
    file = Path(path)
    try:
        body = json.loads(file.read_text())
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    space, kernel = (_section(body, name) for name in ("ConfigurationSpace", "KernelSpecification"))
    if str(kernel.get("Language", "CUDA")).upper() not in ("CUDA", "CUPY"):
        raise ConfigError(f"{file}: Language is {kernel['Language']}, not CUDA")
    knobs = {str(each["Name"]): _list(each, "Values") for each in _list(space, "TuningParameters")}
    conditions = space.get("Conditions") or []
    found = [each["Expression"] if isinstance(each, dict) else str(each) for each in conditions]
    source = file.parent / str(kernel.get("KernelFile", ""))
    extent, block = _extent(kernel, "GlobalSize"), _extent(kernel, "LocalSize")
    if kernel.get("GlobalSizeType", "CUDA") == "OpenCL":  # counts threads
        extent = tuple(f"ceil_div({whole}, {own})" for whole, own in zip(extent, block, strict=True))
    sizes = dict(zip(SIZES, _sizes(kernel), strict=False))
    arguments = [_argument(each, sizes) for each in _list(kernel, "Arguments")]
    constants = {str(each["Name"]): _argument(each, sizes) for each in kernel.get("ConstantMemory", [])}
    made = Kernel(
        source,
        str(kernel["KernelName"]),
        knobs=knobs,
        restrictions=[_python(each) for each in found],
        block=block,
        grid=extent,
        args=arguments,
        constants=constants,
        shared=str(kernel.get("SharedMemory") or 0),
        options=[each for each in kernel.get("CompilerOptions", []) if not each.startswith("-std")],
    )
    made.sizes = {name: value for name, value in sizes.items() if name in made.description.sizes}
    return made


def _section(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if not isinstance(body, dict) or not isinstance(body.get(name), dict):
        raise ConfigError(f"a T1 file has an object {name}")
    return body[name]


def _list(section: Mapping[str, Any], name: str) -> list[Any]:
    """Return an entry that is a list, or the text of one."""
    found = section.get(name)
    if isinstance(found, str):
        try:
            found = ast.literal_eval(found)
        except (SyntaxError, ValueError):
            raise ConfigError(f"{name} of a T1 file is a list, not {found!r}") from None
    if not isinstance(found, (list, tuple)):
        raise ConfigError(f"{name} of a T1 file is a list")
    return list(found)


def _sizes(kernel: Mapping[str, Any]) -> list[int]:
    given = kernel.get("ProblemSize", [])
    return [int(value) for value in (given if isinstance(given, list) else [given])]


def _extent(kernel: Mapping[str, Any], name: str) -> tuple[str, ...]:
    given = kernel.get(name) or {}
    return tuple(_python(str(given.get(axis, 1))) for axis in _AXES)


def _python(text: str) -> str:
    """Return an expression in Python: T1 files of other tuners have C's signs."""
    text = re.sub(r"!(?!=)", " not ", text.replace("&&", " and ").replace("||", " or "))
    return re.sub(r"\bProblemSize\[(\d)\]|\bproblem_size\[(\d)\]", lambda m: SIZES[int(m[1] or m[2])], text)


def _argument(each: Mapping[str, Any], sizes: Mapping[str, int]) -> Argument:
    kind = _TYPES.get(str(each.get("Type")), str(each.get("Type")))
    try:
        dtype = np.dtype(kind)
    except TypeError:
        raise ConfigError(f"the argument {each.get('Name')} has the type {each.get('Type')}") from None
    value = each.get("FillValue", 0)
    if each.get("MemoryType", "Vector") == "Scalar":
        return Scalar(dtype, _python(str(value)))
    role = _ROLES.get(str(each.get("AccessType", "ReadWrite")))
    if role is None:
        raise ConfigError(f"the argument {each.get('Name')} has the access {each['AccessType']}")
    shape = _python(str(each.get("Size", 1)))
    if role is Out:
        return Out(dtype, shape)
    if str(each.get("FillType", "Random")) == "Constant":
        return role(dtype, shape, float(value), float(value))
    return role(dtype, shape)
