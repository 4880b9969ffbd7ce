"""Records and kernels as text: `gensor-tune show`.

sqlite-utils wraps the store's own hardened connection and only reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import sqlite_utils

from gensor_database.connection import translated
from gensor_database.record import Kernel, Record, Source, Timing, Verification
from gensor_database.store import Store
from gensor_database.timings import Winner, winner
from gensor_kernels.build.source import bind
from gensor_kernels.errors import GensorError
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import sustained_us
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.validation import MALFORMED
from gensor_tuner.output import printable, sizes_text

WORKLOAD = ("operator", "sizes", "dtype", "epilogue", "arch", "part", "outcome")
FIELDS = (*WORKLOAD, "predicted_us", "bound_us", "measured_us", "vendor_us", "kernel")


def records(store: Store, arch: str | None) -> Iterator[dict[str, Any]]:
    """Yield every intact record as a flat dictionary; `key`, `walk` and `provenance` stay JSON text.

    `measured_us` is the median time of the record's kernel on its part, `vendor_us` that of the array library's call.
    """
    where = {"arch": arch} if arch else {}
    timed = timings(store, arch)
    for record in sorted(store.rows(Record, **where), key=lambda each: (each.arch, each.part, each.key)):
        ours, theirs = best_times(record, timed.get((record.key, record.part), ()))
        yield {
            **described(record.key),
            "arch": record.arch,
            "part": record.part,
            "outcome": record.outcome,
            "predicted_us": record.predicted_us,
            "bound_us": record.bound_us,
            "measured_us": ours.median_us if ours is not None else None,
            "vendor_us": theirs.median_us if theirs is not None else None,
            "kernel": record.kernel_digest,
            "key": record.key,
            "walk": record.walk,
            "provenance": record.provenance,
            "error": record.error,
        }


def timings(store: Store, arch: str | None) -> dict[tuple[str, str], list[Timing]]:
    """Return every timing by the Workload's key and the part."""
    found: dict[tuple[str, str], list[Timing]] = {}
    for row in store.rows(Timing, **({"arch": arch} if arch else {})):
        found.setdefault((row.key, row.part), []).append(row)
    return found


def best_times(record: Record, rows: Iterable[Timing]) -> tuple[Winner | None, Winner | None]:
    """Return the best times of the record's own kernel and of the array library's call."""
    rows = list(rows)
    mine = (row for row in rows if row.kernel_digest is not None and row.kernel_digest == record.kernel_digest)
    return winner(mine), winner(row for row in rows if row.vendor is not None)


def told_us(key: str, part: str, predicted_us: float | None) -> float | None:
    """Return a record's predicted time as displayed: not below the part's sustained rate.

    The stored prediction is returned where this version does not know the Workload or the part.
    """
    try:
        return max(predicted_us, sustained_us(Workload.from_json(key), lookup(part))) if predicted_us else predicted_us
    except (*MALFORMED, GensorError):
        return predicted_us


def described(key: str) -> dict[str, str]:
    """Return the columns that describe a Workload; "unknown" for a key that this version cannot read."""
    try:
        workload = Workload.from_json(key)
        return {
            "operator": workload.operator,
            "sizes": sizes_text(workload),
            "dtype": workload.kind,
            "epilogue": "_".join(workload.epilogue) or "none",
        }
    except MALFORMED:
        return dict.fromkeys(FIELDS[:4], "unknown")


def record_lines(store: Store, arch: str | None, as_json: bool) -> Iterator[str]:
    """Yield records as JSON lines, or as a table followed by the row counts of the database."""
    if as_json:
        yield from (json.dumps(record, separators=(",", ":")) for record in records(store, arch))
        return
    yield f"{'operator':<9} {'sizes':<20} {'dtype':<9} {'epilogue':<16} {'part':<18} {'outcome':<8} " + (
        f"{'predicted':>12} {'bound':>12}  kernel"
    )
    for each in records(store, arch):
        told = told_us(each["key"], each["part"], each["predicted_us"])
        times = " ".join(f"{time:>9.1f} us" if time else f"{'':>12}" for time in (told, each["bound_us"]))
        yield (
            f"{each['operator']:<9} {each['sizes']:<20} {each['dtype']:<9} {each['epilogue'][:16]:<16} "
            f"{each['part']:<18} {each['outcome']:<8} {times}  {(each['kernel'] or '')[:12]}"
        )
    with translated(store.path):
        tables = sqlite_utils.Database(store.connection)
        names = [name for name in tables.table_names() if not name.startswith("sqlite_")]
        counts = ", ".join(f"{tables[name].count} {name}" for name in names)
    yield counts


def kernel_lines(store: Store, prefix: str) -> Iterator[str]:
    """Yield all details of the kernels whose digest begins with `prefix`."""
    for kernel in store.rows(Kernel):
        if not kernel.digest.startswith(prefix):
            continue
        yield f"kernel    {kernel.digest}"
        yield f"family    {kernel.family}, ABI {kernel.abi}, {kernel.arch}"
        yield f"class     {kernel.class_key}"
        # As stored: another ABI has other coordinates.
        yield f"program   {_coordinates(kernel.program)}"
        binary = store.binary(kernel)
        if binary is not None:
            yield (
                f"binary    {binary.digest[:12]} for {binary.target} by {binary.toolchain}: {len(binary.cubin)} bytes, "
                f"{binary.registers} registers, {binary.spill_bytes} bytes spilled"
            )
            yield f"constants {binary.constants}"
            yield f"facts     {binary.facts}"
        for each in store.rows(Verification, kernel_digest=kernel.digest):
            yield f"verified  {each.method}: {each.outcome} {each.error or ''} worst error / tolerance {each.worst}"
            yield f"          {each.cases}"
            yield f"          {each.counters}"
        for record in store.rows(Record, kernel_digest=kernel.digest):
            sizes = described(record.key)["sizes"]
            yield f"serves    {sizes} on {record.part}: predicted {record.predicted_us} us; walk {record.walk}"
        for timing in store.rows(Timing, kernel_digest=kernel.digest):
            sizes = described(timing.key)["sizes"]
            yield f"timed     {sizes} on {timing.part}: {timing.median_us:.1f} us {timing.device}"


def source_lines(store: Store, prefix: str) -> list[str]:
    """Return the CUDA source of the one kernel whose digest begins with `prefix`, behind its constants.

    Raises GensorError unless there is exactly one such kernel, whose source is in this database.
    """
    found = [kernel for kernel in store.rows(Kernel) if kernel.digest.startswith(prefix)]
    if len(found) != 1:
        several = f"{len(found)} kernels" if found else "no kernel"
        raise GensorError(f"{store.path} has {several} whose digest begins with '{printable(prefix, 64)}'")
    (kernel,) = found
    binary = store.binary(kernel)
    source = store.get(Source, binary.source_digest) if binary is not None else None
    if binary is None or source is None:
        raise GensorError(
            f"{store.path} does not have the source of this kernel: gensor-tune refresh --db {store.path} adds it"
        )
    try:
        text = bind(source.text.decode("utf-8"), json.loads(binary.constants))
    except MALFORMED as error:
        raise GensorError(f"the source of this kernel cannot be shown: {error}") from None
    head = [f"// kernel {kernel.digest}: {kernel.family} for {binary.target}, ABI {kernel.abi}"]
    head.append(f"// program: {_coordinates(kernel.program)}")
    head.append("// constants of the Program, then the source of the family:")
    files = re.sub(r'^#line (\d+) "([^"]+)"$', r"\n// ---- \2, from line \1", text, flags=re.MULTILINE)
    return [*head, *re.sub(r"\n{3,}", "\n\n", files).expandtabs(4).splitlines()]


def _coordinates(program: str) -> str:
    try:
        return " ".join(f"{name}={value}" for name, value in json.loads(program).items() if name != "family")
    except MALFORMED:
        return f"unknown: {printable(program, 200)}"
