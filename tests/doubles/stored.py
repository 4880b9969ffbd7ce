"""Databases of real Programs: without binaries for the emulator, with placeholder binaries for fake devices."""

import json

from gensor_database import Binary, Kernel, Record, Source, Store, Verification, canonical
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, facts
from gensor_kernels.operators.types.workload import Workload

from .kernels import ARCH, starters, workload


def isolate(patch, folder):
    """Hide the packaged databases and the user's own; the path of a user's database that is not there yet."""
    path = folder / "none.db"
    patch.setattr("gensor_database.layers.PRETUNED", folder / "no-packaged-databases")
    patch.setenv("GENSOR_DB", str(path))
    patch.delenv("GENSOR_SITE_DB", raising=False)
    return path


def rows(program, wanted, arch=ARCH, text=None, cubin=b""):
    """The rows of one kernel, as the tuner would store it: Source, Binary, Kernel, Verification."""
    family = FAMILIES[program.family]
    source = Source.of(family.code if text is None else text)
    constants = canonical(family.constants(program, wanted))
    binary = Binary(source.digest, constants, arch.target, cubin, 64, 0, 0, 0, "{}", "nvrtc 12.9.86")
    kernel = Kernel(family.name, family.abi, wanted.class_key(), program.to_json(), arch.name, binary.digest)
    verdict = Verification(kernel.digest, "emulator", "ok", worst=0.5)
    return source, binary, kernel, verdict


def store_kernels(path, arch, *kernels):
    with Store.open(path) as store:
        for program, wanted in kernels:
            store.add(*rows(program, wanted, arch))


SIZES = ((64, 64, 64), (128, 64, 32), (256, 256, 64))


def cubin(number: int) -> bytes:
    return b"\x7fELF kernel %d" % number


def kernel_rows(wanted, limit=3):
    found = enumerate(list(starters(wanted))[:limit])
    return [rows(kernel.program, wanted, cubin=cubin(number)) for number, kernel in found]


def record_of(wanted, kernel: Kernel, created=1_700_000_000) -> Record:
    return Record(wanted.key(), ARCH.name, ARCH.part, kernel.abi, kernel.digest, 5.0, 1.0, "ok", created=created)


def stock(path, sizes=SIZES, kernels=3, **keywords) -> list:
    """Make a database: a record and a portfolio of the default Programs for each size; the Workloads."""
    made = [workload(*size, **keywords) for size in sizes]
    with Store.open(path) as store:
        for wanted in made:
            found = kernel_rows(wanted, kernels)
            store.add(*(row for group in found for row in group), record_of(wanted, found[0][2]))
            store.replace_portfolio(ARCH.name, ARCH.part, wanted.class_key(), [group[2].digest for group in found])
    return made


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


SIMT = "contraction_simt"


def class_workload(inputs, result, math, layouts, aligned):
    """A Workload of a class at sizes large enough for every starter."""
    types = {"a": inputs, "b": inputs, "c": result}
    return Workload(
        "matmul",
        {"batch": 1, "m": 256, "n": 256, "k": 4096},
        types,
        ACCUMULATORS[inputs],
        math,
        dict(zip("abc", layouts, strict=True)),
        {name: 16 if aligned else facts(dtype).itemsize for name, dtype in types.items()},
    )


def programs(wanted, arch, family, split, turn):
    """One of the family's smaller default Programs, and the same with a split.

    `turn` is the same for all classes of a dtype: with one tile, the class with the largest request is the fastest.
    """
    small = [p for p in FAMILIES[family].starters(wanted, arch) if p["block_m"] * p["block_n"] <= 8192]
    chosen = sorted(small, key=lambda p: p.to_json())[turn % len(small)]
    found = [chosen.replace(split_k=1, raster=2)] + ([chosen.replace(split_k=6, raster=1)] if split else [])
    return [p for p in found if legal(p, wanted, arch)]


def legal(program, wanted, arch):
    space = FamilySpace(FAMILIES[program.family], wanted, arch)
    return bool(space.legal(space.point(program)[None])[0])


def stock_classes(path, archs, alter=lambda text: text):
    """Writes the database; digest -> (Program, class Workload) of its kernels. `alter` changes every source.

    `archs` has for each, by (dtype of the operands, of the result, math), rows of layouts of a, b and c, whether these
    are aligned to 16 bytes, the family, and whether there is a split, too.
    """
    written = {}
    with Store.open(path) as store:
        for name, classes in archs.items():
            arch = lookup(name)
            for turn, (types, variants) in enumerate(classes.items()):
                for layouts, wide, family, split in variants:
                    wanted = class_workload(*types, layouts, wide)
                    text = alter(FAMILIES[family].text)
                    for program in programs(wanted, arch, family, split, turn):
                        found = rows(program, wanted, arch, text)
                        store.add(*found)
                        written[found[2].digest] = (program, wanted)
    return written
