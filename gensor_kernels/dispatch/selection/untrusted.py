"""Rows of a database that others can write to: Programs and times are taken, never code.

Each row is checked against the grammar of what this version writes, and kernels are generated from the installed
sources. All that a file decides is which of the Programs that this version would build itself serves a call.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from functools import lru_cache
from operator import attrgetter

import gensor_database as database
from gensor_kernels.devices.device import Code
from gensor_kernels.errors import MALFORMED, BuildError
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.validation import class_of, program_of, workload_of
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.workload import Workload

from . import library
from .library import Kernel, code


def well_formed(row: database.Row) -> bool:
    """Return whether a row of a foreign database is one that this version could have written."""
    try:
        if isinstance(row, database.Kernel):
            program_of(row.family, row.abi, row.class_key, row.program, row.arch)
        elif isinstance(row, database.Portfolio):
            _known_class(row.class_key)
        elif isinstance(row, (database.Record, database.Timing)):
            _known_workload(row.key)
            return not isinstance(row, database.Timing) or 0 < row.median_us < math.inf
    except MALFORMED:
        return False
    return True


@lru_cache(maxsize=4096)
def _known_workload(key: str) -> Workload:
    return workload_of(key)


@lru_cache(maxsize=512)
def _known_class(key: str) -> Workload:
    return class_of(key)


def is_foreign(stored: database.StoredKernel) -> bool:
    """Return whether only databases that others can write to have this kernel."""
    return not any(map(attrgetter("trusted"), stored.stores))


def is_legal(kernel: Kernel, key: str, arch: Arch) -> bool:
    """Return whether a foreign kernel may run the Workload that its file says it is for."""
    try:
        return library.is_legal(kernel, _known_workload(key), arch)
    except (BuildError, *MALFORMED):
        return False


def code_of(program: Program, serves: Workload, binary: database.Binary, arch: Arch) -> Code:
    """Return the code of a Program, made from the installed sources: of a foreign binary only the operations of an
    epilogue compiled into it are read, which a Program does not say. BuildError where that is none."""
    try:
        family, wanted = (
            FAMILIES[program.family],
            serves.with_epilogue(_epilogue_of(program, json.loads(binary.constants))),
        )
        return code(family.text, family.constants(program, wanted), arch.target)
    except MALFORMED as error:
        raise BuildError(f"a Program of a database that others can write to makes no kernel: {error}") from None


def _epilogue_of(program: Program, given: Mapping[str, object]) -> Collection[str]:
    """Return the epilogue compiled into a binary: five bits per operation, the first lowest."""
    names = {operation.code: name for name, operation in OPERATIONS.items()}
    codes, found = given.get("EPILOGUE_CODES", 0), []
    if not program.get("epilogue_fixed") or not isinstance(codes, int):
        return ()
    while codes > 0:
        if codes & 31 in names:
            found.append(names[codes & 31])
        codes >>= 5
    return found
