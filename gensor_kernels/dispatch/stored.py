"""From databases to a Library.

A cubin, and the source text beside it, are taken only from stores that nobody else can have written to. From any
other store the Program and its constants are taken, and the code is made anew from the installed sources.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import gensor_database as database

from .. import config
from ..build.source import flatten
from ..devices.device import Code
from ..errors import BuildError, GensorError
from ..machine.arch import Arch
from ..operators import operator
from ..operators.workload import Workload
from ..programs.families import FAMILIES
from ..programs.program import Program
from .library import Contents, Kernel, Library, code


def library(arch: Arch) -> Library:
    """Everything stored for `arch`: packaged, site's and user's. What cannot be read is a warning."""
    return Library(read=partial(read, arch))


def read(arch: Arch) -> Contents:
    """The contents of the three layers now."""
    layers = database.open_layers(arch.name, config.own_database(), config.site_database())
    abis = {name: family.abi for name, family in FAMILIES.items()}
    return contents(layers.load(arch.name, abis), arch)


def contents(catalog: database.Catalog, arch: Arch) -> Contents:
    """Usable kernels, records and portfolios that name them (this part's before another's), this part's timings."""
    # This part's records last, where they replace those of others.
    usable = sorted((each for each in catalog.entries() if each.usable), key=lambda each: each.record.part == arch.part)
    records = {each.record.key: each.kernel.digest for each in usable}
    rows = {row.digest for store in catalog.stores for row in store.rows(database.Kernel, arch=arch.name)}
    stored = [kernel for digest in sorted(rows) if (kernel := catalog.kernel(digest)) is not None]
    kernels = [_kernel(each, arch) for each in stored if each.usable]
    classes = {each.kernel.class_key for each in stored}
    timed = {r.key for store in catalog.stores for r in store.rows(database.Timing, arch=arch.name, part=arch.part)}
    return Contents(
        kernels={kernel.digest: kernel for kernel in kernels if kernel is not None},
        records=records,
        timings={key: catalog.timings(key, arch.part) for key in timed},
        portfolio={each.kernel.digest for name in classes for each in _portfolio(catalog, name, arch)},
    )


def records_of(path: Path, arch: Arch) -> list[str]:
    """The keys of the Workloads that the database at `path` has records of for `arch`; GensorError for no database."""
    try:
        with database.Store.open(path, readonly=True) as store:
            return sorted({row.key for row in store.rows(database.Record, arch=arch.name)})
    except database.StoreError as error:
        raise GensorError(str(error)) from None


def _portfolio(catalog: database.Catalog, class_key: str, arch: Arch) -> Sequence[database.StoredKernel]:
    """The portfolio of a class: what covers its sizes on one part of the arch does so, if less well, on another."""
    return catalog.portfolio(class_key, arch.part) or catalog.portfolio(class_key)


def _kernel(stored: database.StoredKernel, arch: Arch) -> Kernel | None:
    row = stored.kernel
    try:
        program = Program.from_json(row.program)
        serves = class_workload(row.class_key)
    except (ValueError, KeyError, TypeError) as error:
        config.logger().warning("kernel %s is ignored: %s", row.digest[:12], error)
        return None
    return Kernel(row.digest, program, serves, partial(_code, stored, arch))


def class_workload(class_key: str) -> Workload:
    """A Workload of the class with this key, at its operator's smallest sizes."""
    fields = json.loads(class_key)
    return Workload(**fields, sizes=operator(fields["operator"]).smallest, epilogue=())


def _code(stored: database.StoredKernel, arch: Arch) -> Code:
    """The code of a kernel; BuildError where its rows are gone."""
    binary = stored.binary()
    if binary is not None and binary.target == arch.target:
        source = stored.source()
        if source is not None:
            return code(source.text.decode("utf-8"), json.loads(binary.constants), binary.target, binary.cubin)
    binary = binary or stored.binary(trusted=False)
    if binary is None:
        raise BuildError(f"the binary of kernel {stored.kernel.digest[:12]} cannot be read from any database")
    return code(flatten(FAMILIES[stored.kernel.family].source), json.loads(binary.constants), arch.target)
