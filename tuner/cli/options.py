"""Options that several commands of gensor-tune have, and the values that options take."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from gensor_kernels import config, spelling
from gensor_kernels.build import parallel
from gensor_kernels.errors import ConfigError
from gensor_kernels.machine.arch import archs, capability_name, lookup, modes, table

if TYPE_CHECKING:
    from gensor_database.store import Store

ARCH = "Compute capability (sm_87) or part (orin-nano-8gb, Jetson Orin Nano, RTX 4090)."


def complete_arch(incomplete: str) -> list[str]:
    """Return what a shell offers for a capability or part: those that begin so; else market names with dashes.

    Examples
    --------
    >>> complete_arch("agx-orin-64gb@")
    ['agx-orin-64gb@maxn', 'agx-orin-64gb@50w', 'agx-orin-64gb@30w', 'agx-orin-64gb@15w']
    >>> complete_arch("jetson-orin-nx")
    ['jetson-orin-nx-16gb', 'jetson-orin-nx-8gb']
    """
    parts = [arch.part for arch in archs()]
    if "@" in incomplete:
        parts = [f"{arch.part}@{mode}" for arch in archs() for mode in modes(arch)]
    market = [name.lower().replace(" ", "-") for row in table()["part"].values() for name in row["names"]]
    for names in ([*table()["capability"], *parts], market):
        if found := [name for name in names if name.startswith(incomplete)]:
            return found
    return []


ClusterOption = Annotated[
    str | None,
    Option(
        metavar="ADDRESS",
        help="Tune on a Dask cluster: tcp://HOST:PORT, tls://HOST:PORT, local[:N] (N processes here), or dask (as "
        "Dask is configured).",
    ),
]
ArchOption = Annotated[str, Option(metavar="ARCH", help=ARCH, autocompletion=complete_arch)]
ShapesOption = Annotated[Path, Option(metavar="FILE", help="The shapes file (CSV); - is stdin.")]
SeedOption = Annotated[int, Option(metavar="N", min=0, help="Seed of the walks.")]
TopOption = Annotated[int, Option(metavar="N", min=1, max=256, help="Finalists compiled per class.")]
DbOption = Annotated[
    Path | None, Option(metavar="FILE", help="Database; default GENSOR_DB, else kernels.db in the cache folder.")
]
InputOption = Annotated[
    list[str] | None,
    Option(
        metavar="NAME=EXTENTS",
        help="Shape of a model's input, as x=1x3x224x224, a size that its file leaves open, as batch=8, or the value "
        "of an input without axes, as rate=16000. Lists stand for all sizes: x=1,8x3x224x224. May be repeated.",
    ),
]
#: Types in which a model's float32 tensors can be computed, and how else people write them.
DTYPES = ("float16", "bfloat16")
SPELT = {"fp16": "float16", "half": "float16", "bf16": "bfloat16"}
DryRunOption = Annotated[bool, Option("--dry-run", help="Print what would be deleted, and delete nothing.")]
JsonOption = Annotated[Path | None, Option("--json", metavar="FILE", help="Write one JSON object per result to FILE.")]
BudgetOption = Annotated[float | None, Option(metavar="SECONDS", min=0.0, help="Stop starting new work after SECONDS.")]

ModelArgument = Annotated[Path, Argument(metavar="MODEL", help="The ONNX model.")]
LinesOption = Annotated[bool, Option("--json", help="JSON lines instead of text.")]
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def cores(jobs: int) -> int:
    """Return the number of jobs for `--jobs`: 0 means every core this process may use."""
    return jobs or parallel.usable_cores()


def database(path: Path | None) -> Path:
    """Return the path given by `--db`, else the user's database from the environment."""
    return path if path is not None else config.user_database()


def existing_file(path: Path | None) -> Path:
    """Return the database's path, or raise ConfigError with advice where there is no such file."""
    file = database(path)
    if not os.path.exists(file):  # false also for a name that is too long
        raise ConfigError(f"{file} does not exist: tune into it first, or name another database with --db")
    return file


def existing(path: Path | None) -> Store:
    """Open the database for reading; errors as in `existing_file`."""
    from gensor_database.store import Store

    return Store.open(existing_file(path), readonly=True)


def capability(arch: str | None) -> str | None:
    """Return the compute capability of a part or capability; one that archs.toml does not list as it is."""
    return None if arch is None else capability_name(arch) or lookup(arch).name


def dtype_of(text: str | None) -> str | None:
    """Return the type of `--dtype` as `gensor_kernels.load` takes it."""
    found = None if text is None else spelling.find(text, DTYPES, SPELT)
    if text is not None and found is None:
        raise BadParameter(spelling.unknown(text, DTYPES, SPELT))
    return found


@contextmanager
def read_first(path: Path | None) -> Iterator[None]:
    """Let the runtime read the database of `--db` in place of the user's; ConfigError where there is none."""
    known = os.environ.get("GENSOR_DB")
    if path is not None:
        os.environ["GENSOR_DB"] = str(existing_file(path).absolute())
    try:
        yield
    finally:
        if path is not None:
            os.environ.pop("GENSOR_DB")
            os.environ.update({} if known is None else {"GENSOR_DB": known})


DtypeOption = Annotated[
    str | None,
    Option(
        metavar="DTYPE",
        help="Compute the model's float32 tensors in 16 bits: float16 or bfloat16.",
        callback=dtype_of,
        autocompletion=lambda: DTYPES,
    ),
]
JobsOption = Annotated[
    int, Option(metavar="N", min=0, help="Parallel jobs; 0 uses every available core.", callback=cores)
]


def _only(what: str) -> Any:
    """Return the option of a capability that limits a command to some of what it is about."""
    return Option(metavar="ARCH", help=f"Only {what}.", callback=capability, autocompletion=complete_arch)


OnlyArchOption = Annotated[str | None, _only("kernels of this capability")]
RecordsArchOption = Annotated[str | None, _only("records of this capability")]
RowsArchOption = Annotated[str | None, _only("rows of this capability")]
PackagedArchOption = Annotated[str | None, _only("the packaged database of this capability; default: of each")]


def bytes_of(text: str) -> int:
    """Parse a number of bytes: digits, optionally followed by k, M or G for 10^3, 10^6, 10^9."""
    match = re.fullmatch(r"([0-9]{1,15})([kmg]?)b?", text.strip().lower())
    if match is None or int(match[1]) == 0:
        raise BadParameter(f"--memory takes a number of bytes such as 500000000, 500M or 2G, not '{text[:40]}'")
    return int(match[1]) * UNITS[match[2]]


def one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise BadParameter, with similar choices, unless `value` is one of `choices`."""
    if value not in choices:
        raise BadParameter(f"{option}: {spelling.unknown(value, choices)}")
