"""From databases to a Library.

Cubins and source texts are taken only from stores that no other user can have written to. From any other store
Programs and times are taken (untrusted.py), and the code is generated again from the installed sources.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from pathlib import Path

import gensor_database as database
from gensor_database.timings import is_settled
from gensor_kernels import config
from gensor_kernels.devices.device import Code
from gensor_kernels.errors import MALFORMED, BuildError, ConfigError, GensorError
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import Workload

from . import untrusted
from .library import Contents, Kernel, Library, code

#: Seconds that a call waits for a database which another process has locked, before it continues without it.
PATIENCE = 5.0


def library(arch: Arch) -> Library:
    """Return what is stored for `arch`: packaged, site's and user's. Unreadable databases are warnings.

    The rows of some types are read at the first Workload of them, so that a process waits for those it needs.
    """
    return Library(read=lambda: Contents(of=_reader(arch)), arch=arch, facts=_facts)


def read(arch: Arch) -> Contents:
    """Return the contents of the three layers now."""
    return _reader(arch)(None)


def _reader(arch: Arch) -> Callable[[Workload | None], Contents]:
    """Open the three layers, and return a function that reads what they hold for a Workload's types, or for all."""
    layers = database.open_layers(arch.name, config.own_database(), _path(config.site_database), PATIENCE)
    abis = {name: family.abi for name, family in FAMILIES.items()}

    def of(workload: Workload | None) -> Contents:
        texts = () if workload is None else workload.type_texts()
        return contents(layers.load(arch.name, abis, untrusted.well_formed, texts), arch)

    return of


def _facts() -> Hashable:
    return database.file_facts(config.own_database()), database.file_facts(_path(config.site_database))


def _path(setting: Callable[[], Path | None]) -> Path | None:
    try:
        return setting()
    except ConfigError as error:
        config.logger().warning("a database is left out: %s", error)
        return None


def contents(catalog: database.Catalog, arch: Arch) -> Contents:
    """Usable kernels, records and portfolios that name them (this part's before another's), and this part's timings
    but for those of tuning in the background, which a race has to confirm."""
    usable = [each for each in catalog.entries() if each.stored.usable]
    own = [each for each in usable if each.record.part == arch.part]
    stored = catalog.kernels()
    kernels = {each.digest: each for row in stored if row.usable and (each := _kernel(row, arch)) is not None}
    mixed = not all(store.trusted for store in catalog.stores)
    strange = {r.kernel.digest: kernels.get(r.kernel.digest) for r in stored if mixed and untrusted.is_foreign(r)}
    classes = {each.kernel.class_key for each in stored}

    def may(name: str | None, key: str) -> bool:
        """Return whether a record or time of this kernel and Workload counts: those of foreign kernels are examined."""
        kernel = strange.get(name or "")
        return name not in strange or (kernel is not None and untrusted.is_legal(kernel, key, arch))

    # This part's records last, where they replace those of others.
    entries = [*usable, *own]
    records = {e.record.key: e for e in entries if not strange or may(e.stored.kernel.digest, e.record.key)}
    return Contents(
        kernels=kernels,
        records={key: e.stored.kernel.digest for key, e in records.items()},
        unsettled={key for key, e in records.items() if not is_settled(e.record)},
        elsewhere={key for key, e in records.items() if e.record.part != arch.part},
        timings={
            key: [row for row in database.quiet(catalog.timings(key, arch.part)) if may(row.kernel_digest, key)]
            for key in catalog.timed_keys(arch.part)
        },
        portfolio={each.kernel.digest for name in classes for each in _portfolio(catalog, name, arch)},
    )


def records_of(path: Path, arch: Arch) -> list[str]:
    """Return the keys of Workloads with records for `arch` in the database at `path`; GensorError for no database."""
    try:
        with database.Store.open(path, readonly=True) as store:
            return sorted({row.key for row in store.rows(database.Record, arch=arch.name)})
    except database.StoreError as error:
        raise GensorError(str(error)) from None


def _portfolio(catalog: database.Catalog, class_key: str, arch: Arch) -> Sequence[database.StoredKernel]:
    """Return the portfolio of a class for this part of the arch, or of other parts, which cover its sizes less well."""
    return catalog.portfolio(class_key, arch.part) or catalog.portfolio(class_key)


def _kernel(stored: database.StoredKernel, arch: Arch) -> Kernel | None:
    row = stored.kernel
    try:
        program = program_from_json(row.program)
        serves = class_workload(row.class_key)
    except MALFORMED as error:
        config.logger().warning("kernel %s is ignored: %s", row.digest[:12], error)
        return None
    return Kernel(row.digest, program, serves, partial(_code, stored, program, serves, arch))


@lru_cache(maxsize=4096)
def class_workload(class_key: str) -> Workload:
    """Return a Workload of the class with this key, at its operator's smallest sizes: one for all of its kernels."""
    fields = json.loads(class_key)
    declared = operator(fields["operator"])
    return declared.of_class(Workload(**fields, sizes=declared.smallest, epilogue=()))


def _code(stored: database.StoredKernel, program: Program, serves: Workload, arch: Arch) -> Code:
    """Return the code of a kernel. Where its rows cannot be read any more, what its Program says; BuildError where an
    epilogue had been compiled into it, which only they name."""
    binary = stored.binary()
    if binary is not None and binary.target == arch.target:
        source = stored.source()
        if source is not None:
            return code(source.text.decode("utf-8"), json.loads(binary.constants), binary.target, binary.cubin)
    binary = binary or stored.binary(trusted=False)
    if binary is None:
        if program.get("epilogue_fixed"):
            raise BuildError(f"the binary of kernel {stored.kernel.digest[:12]} cannot be read from any database")
        family = FAMILIES[program.family]
        return code(family.text, family.constants(program, serves), arch.target)
    if untrusted.is_foreign(stored):
        return untrusted.code_of(program, serves, binary, arch)
    return code(FAMILIES[stored.kernel.family].text, json.loads(binary.constants), arch.target)
