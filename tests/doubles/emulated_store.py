"""A database of kernels for the emulated tests: few classes, so that a run builds few libraries.

Every dtype has kernels for some layouts at 16-byte alignment, for some at element alignment, and one without any
unit stride, which serves whatever the others do not. Cubins are absent: the emulator builds from the sources.
"""

import json

from gensor_database import Binary, Kernel, Source, Store, Verification
from gensor_kernels.build.source import flatten
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace

ACCUMULATORS = dict(float64="float64", float32="float32", float16="float32", bfloat16="float32", int8="int32")
ACCUMULATORS |= dict(complex64="complex64", complex128="complex128")
SIZES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int8": 1,
    "int32": 4,
    "complex64": 8,
    "complex128": 16,
}
MMA, SIMT = "contraction_mma", "contraction_simt"

# (dtype of the operands, of the result, math) -> (layouts of a, b and c, 16-byte aligned, family, with a split too)
CLASSES = {
    ("float64", "float64", "ieee"): [
        ("knn", True, SIMT, True),
        ("knn", False, SIMT, False),
        ("mkn", False, SIMT, False),
        ("sss", False, SIMT, False),
    ],
    ("float32", "float32", "ieee"): [
        ("knn", True, SIMT, True),
        ("knn", False, SIMT, False),
        ("mnn", False, SIMT, False),
        ("kkn", False, SIMT, False),
        ("sss", False, SIMT, True),
    ],
    ("float32", "float32", "tf32"): [
        ("knn", True, MMA, True),
        ("kkn", True, MMA, False),
        ("knn", False, MMA, False),
        ("mnn", False, MMA, False),
        ("sss", False, SIMT, False),
    ],
    ("float16", "float16", "ieee"): [
        ("knn", True, MMA, True),
        ("kkn", True, MMA, False),
        ("mnn", True, MMA, False),
        ("knn", False, MMA, False),
        ("mkn", False, MMA, True),
        ("sss", False, SIMT, False),
    ],
    ("float16", "float32", "ieee"): [("knn", True, MMA, False), ("sss", False, SIMT, False)],
    ("bfloat16", "bfloat16", "ieee"): [
        ("knn", True, MMA, True),
        ("mkn", True, MMA, False),
        ("knn", False, MMA, False),
        ("sss", False, SIMT, False),
    ],
    ("int8", "int32", "ieee"): [
        ("knn", True, MMA, False),
        ("kkn", True, MMA, True),
        ("knn", False, MMA, False),
        ("sss", False, SIMT, False),
    ],
    ("int8", "int8", "ieee"): [("kkn", True, MMA, False), ("knn", False, MMA, False), ("sss", False, SIMT, False)],
    ("int8", "float32", "ieee"): [("sss", False, SIMT, False)],
}
# Without cp.async, with other int8 and float16 instructions.
OLD_CLASSES = {
    ("float16", "float16", "ieee"): [("knn", True, MMA, False), ("sss", False, SIMT, False)],
    ("int8", "int32", "ieee"): [("kkn", True, MMA, False), ("sss", False, SIMT, False)],
}
ARCHS = {"sm_87": CLASSES, "sm_75": OLD_CLASSES}


def isolate(patch, folder):
    """No database but those a test makes: neither the packaged ones nor the user's."""
    patch.setattr("gensor_database.layers.PRETUNED", folder / "no-packaged-databases")
    patch.setenv("GENSOR_DB", str(folder / "none.db"))
    patch.delenv("GENSOR_SITE_DB", raising=False)


def workload(inputs, result, math, layouts, aligned):
    """A Workload of a class at sizes large enough for every starter."""
    types = {"a": inputs, "b": inputs, "c": result}
    return Workload(
        "matmul",
        {"batch": 1, "m": 256, "n": 256, "k": 4096},
        types,
        ACCUMULATORS[inputs],
        math,
        dict(zip("abc", layouts, strict=True)),
        {name: 16 if aligned else SIZES[dtype] for name, dtype in types.items()},
    )


def programs(wanted, arch, family, split, turn):
    """One of the family's smaller default Programs, and the same with a split.

    `turn` is the same for all classes of a dtype: with one tile, the class that asks for most is the fastest.
    """
    small = [p for p in FAMILIES[family].starters(wanted, arch) if p["block_m"] * p["block_n"] <= 8192]
    chosen = sorted(small, key=lambda p: p.to_json())[turn % len(small)]
    found = [chosen.replace(split_k=1, raster=2)] + ([chosen.replace(split_k=6, raster=1)] if split else [])
    return [p for p in found if legal(p, wanted, arch)]


def legal(program, wanted, arch):
    space = FamilySpace(FAMILIES[program.family], wanted, arch)
    return bool(space.legal(space.point(program)[None])[0])


def rows(program, wanted, arch, text, cubin=b""):
    """The rows of one kernel, as the tuner would store it."""
    family = FAMILIES[program.family]
    source = Source.of(text)
    constants = json.dumps(family.constants(program, wanted), sort_keys=True)
    binary = Binary(source.digest, constants, arch.target, cubin, 0, 0, 0, 0, "{}", "none")
    kernel = Kernel(family.name, family.abi, wanted.class_key(), program.to_json(), arch.name, binary.digest)
    return source, binary, kernel, Verification(kernel.digest, "emulator", "ok", provenance='{"by":"tests"}')


def stock(path, archs=ARCHS, alter=lambda text: text):
    """Writes the database; digest -> (Program, class Workload) of its kernels. `alter` changes every source."""
    written = {}
    with Store.open(path) as store:
        for name, classes in archs.items():
            arch = lookup(name)
            for turn, (types, variants) in enumerate(classes.items()):
                for layouts, wide, family, split in variants:
                    wanted = workload(*types, layouts, wide)
                    text = alter(flatten(FAMILIES[family].source))
                    for program in programs(wanted, arch, family, split, turn):
                        found = rows(program, wanted, arch, text)
                        store.add(*found)
                        written[found[2].digest] = (program, wanted)
    return written
