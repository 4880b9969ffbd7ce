"""Parts that archs.toml does not list, from files in the form of one of its rows."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from gensor_kernels.machine import arch as machine
from gensor_kernels.machine.arch import Arch

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Facts that every row states; the others come from its capability.
WANTED = ("capability", "sms", "clock_ghz", "dram_gb_s", "l2_mb", "l2_bytes_per_clk")
#: Facts that may be 0: the shared memory that a driver keeps for itself.
MAY_BE_NOTHING = ("smem_reserved",)


def part_named(name: str) -> Arch:
    """Return a part by name, or from a TOML file in the form of a row of archs.toml (its keys, or one [part.NAME]
    table).

    Raises UnknownArchError, or ValueError with the file's name where it describes no part.
    """
    if not name.endswith(".toml"):
        return machine.lookup(name)
    try:
        row = tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except ValueError as error:  # neither TOML nor text
        raise ValueError(f"{name}: {error}") from None
    part = Path(name).stem
    if "part" in row:
        if not isinstance(row["part"], dict) or len(row["part"]) != 1:
            raise ValueError(f"{name}: one table [part.NAME] is wanted")
        ((part, row),) = row["part"].items()
    _check(name, row)
    return machine._build(machine.lookup(row["capability"]).name, part, row)


def _check(path: str, row: Mapping[str, Any]) -> None:
    """Raise ValueError where a row misses a fact, has an unknown one, or has a value that is not possible."""
    missing = [key for key in WANTED if key not in row]
    if missing:
        raise ValueError(f"{path} does not say {', '.join(missing)}")
    numbers = {*machine.RATES, *(each.name for each in fields(Arch) if each.type in ("int", "float"))}
    others = {each.name for each in fields(Arch)} - {"name", "part", "rates"} | {"capability", *machine.NAMING}
    unknown = sorted(row.keys() - numbers - others)
    if unknown:
        raise ValueError(f"{path}: no part has {', '.join(unknown)}")
    for key in row.keys() & numbers:
        value = row[key]
        least = 0 if key in MAY_BE_NOTHING or key in machine.RATES else 1e-9
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < float("inf"):
            raise ValueError(f"{path}: {key} is {value!r}, which no part has")
