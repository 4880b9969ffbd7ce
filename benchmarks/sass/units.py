"""How long an instruction occupies the unit that executes it, and how much it moves."""

from __future__ import annotations

import re
from collections.abc import Iterable

from benchmarks.sass.build import LANES
from gensor_kernels.build.instruction import Instruction
from gensor_kernels.machine.arch import Arch

SCHEDULERS = 4  # of a multiprocessor; warps of a warpgroup
MUFU_LANES = 4  # of a scheduler's unit for exponentials and reciprocals

#: Products of a whole warpgroup.
GROUP = frozenset({"HGMMA", "IGMMA", "QGMMA"})
#: Products in tensor memory, which one thread issues for the multiprocessor, by the types of their operands.
TENSOR = {"UTCHMMA": "f16", "UTCQMMA": "f8", "UTCIMMA": "s8"}
#: Stores of results, from registers, and by tensor or bulk copies from shared memory.
STORES, COPIED_STORES = frozenset({"STG", "RED"}), frozenset({"UTMASTG", "UTMAREDG", "UBLKRED", "UBLKCP"})
STAGED = frozenset({"STS", "STSM"})
SHARED_READS = frozenset({"LDS", "LDSM"})

_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)")
#: m, n, k of a warp's products by the digits of the opcode, such as HMMA.16816.
_SHAPES = {
    **{"884": (8, 8, 4), "1684": (16, 8, 4), "1688": (16, 8, 8), "16816": (16, 8, 16), "16832": (16, 8, 32)},
    **{"16864": (16, 8, 64), "8816": (8, 8, 16), "8832": (8, 8, 32)},
}
_LANE_WORK = {"FFMA2": 2, "HFMA2": 2, "IDP": 4}


def shape(each: Instruction) -> tuple[int, int, int] | None:
    """Return m, n and k of a warp's matrix product, or of the quarter of a warpgroup's that is one warp's."""
    for word in each.opcode.split(".")[1:]:
        if word in _SHAPES:
            return _SHAPES[word]
        if found := _SHAPE.fullmatch(word):
            m, n, k = map(int, found.groups())
            return m // SCHEDULERS, n, k
    return None


def work(each: Instruction) -> int:
    """Return the multiply-adds of one warp's product."""
    found = shape(each)
    return LANES * _LANE_WORK.get(each.name, 1) if found is None else found[0] * found[1] * found[2]


def clocks(each: Instruction, arch: Arch) -> float:
    """Return how long one warp's product occupies its scheduler's unit, in clocks."""
    return work(each) * SCHEDULERS / arch.rate(rate_name(each, arch))


def rate_name(each: Instruction, arch: Arch) -> str:
    """Return the rate of `arch` at which a product is executed."""
    if shape(each) is None:
        return "fma_f64" if each.name == "DFMA" else "imad" if each.name == "IMAD" else "fma_f32"
    kind = kind_of(each)
    best = [f"peak_{kind}", f"mma_{kind}"]
    for name in best if each.name in GROUP or kind == "f8" else best[::-1]:
        if arch.rate(name):
            return name
    raise ValueError(f"{arch.name} has no rate of {each.opcode}")


def kind_of(each: Instruction) -> str:
    """Return the type of a product's operands as `archs.toml` spells it: f16, tf32, s8, f8, f64, f32."""
    if each.name in TENSOR:
        return TENSOR[each.name]
    if each.name == "DMMA" or each.name == "DFMA":
        return "f64"
    if shape(each) is None:
        return "f32"
    if each.name in ("IMMA", "IGMMA"):
        return "s8"
    if each.name in ("QMMA", "QGMMA", "OMMA"):
        return "f8"
    return "tf32" if "TF32" in each.opcode else "f16"


def shared_read(path: Iterable[Instruction]) -> float:
    """Return the bytes that one warp's instructions read from shared memory, its share of a warpgroup's operands
    included."""
    total = 0.0
    for each in path:
        if each.name in SHARED_READS:
            total += each.width * LANES
        elif each.name in GROUP:
            m, n, k = shape(each) or (0, 0, 0)
            element = {"f16": 2, "tf32": 4}.get(kind_of(each), 1)
            from_registers = not each.operands.split(",")[1].strip().startswith("gdesc")
            total += k * element * (n / SCHEDULERS + (0 if from_registers else m))
    return total


def global_read(path: Iterable[Instruction]) -> int:
    """Return the bytes that one warp's loads and copies read from global memory; none for tensor copies."""
    return sum(each.width * LANES for each in path if each.name in ("LDG", "LDGSTS"))
