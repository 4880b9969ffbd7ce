"""Databases with real Programs whose cubins are placeholders: for devices that only look at what they are given."""

from __future__ import annotations

import json

from gensor_database import Binary, Kernel, Record, Row, Source, Store, Verification, canonical
from gensor_kernels.programs.registry import FAMILIES

from .numpy_device import ARCH, starters, workload

SIZES = ((64, 64, 64), (128, 64, 32), (256, 256, 64))


def cubin(number: int) -> bytes:
    """An image that begins as one."""
    return b"\x7fELF kernel %d" % number


def kernel_rows(wanted, limit=3) -> list[tuple[Source, Binary, Kernel, Verification]]:
    """The rows of the default Programs of a Workload."""
    found = []
    for number, kernel in enumerate(list(starters(wanted))[:limit]):
        source = Source.of(kernel.code.text)
        constants = canonical(dict(kernel.code.constants))
        binary = Binary(source.digest, constants, ARCH.target, cubin(number), 64, 0, 0, 0, "{}", "nvrtc 12.9.86")
        family = FAMILIES[kernel.program.family]
        row = Kernel(family.name, family.abi, wanted.class_key(), kernel.program.to_json(), ARCH.name, binary.digest)
        found.append((source, binary, row, Verification(row.digest, "emulator", "ok", worst=0.5)))
    return found


def record_of(wanted, kernel: Kernel, created=1_700_000_000) -> Record:
    """A record that names a kernel."""
    return Record(wanted.key(), ARCH.name, ARCH.part, kernel.abi, kernel.digest, 5.0, 1.0, "ok", created=created)


def stock(path, sizes=SIZES, kernels=3, **keywords) -> list:
    """Make a database: a record and a portfolio of the default Programs for each size; the Workloads."""
    made = [workload(*size, **keywords) for size in sizes]
    with Store.open(path) as store:
        for wanted in made:
            found = kernel_rows(wanted, kernels)
            rows: list[Row] = [row for group in found for row in group]
            store.add(*rows, record_of(wanted, found[0][2]))
            store.replace_portfolio(ARCH.name, ARCH.part, wanted.class_key(), [group[2].digest for group in found])
    return made


def lines(path) -> list[dict]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]
