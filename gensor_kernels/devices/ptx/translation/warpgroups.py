"""Instructions of warpgroups as C++: wgmma.mma_async, fence, commit_group and wait_group (PTX ISA, chapter 9.7.15)."""

import re
from collections.abc import Iterable

from .parse import (
    Address,
    Box,
    Entry,
    Immediate,
    Instruction,
    NotExecutedError,
    Operand,
    Pair,
    PtxError,
    Register,
    Vector,
)
from .warps import Meeting
from .writer import Qualifiers, Writer, operands

PRODUCT = "wgmma.mma_async"
#: instructions that use registers after they have been issued
LATE = (PRODUCT, "tcgen05.ld.")
#: elements of k in the 32 bytes that a product takes of each row, by the type of a
K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
#: types of b and of d by the type of a; b has the type of a where nothing is said, and d is f16 or f32
B = {"e4m3": ("e4m3", "e5m2"), "e5m2": ("e4m3", "e5m2"), "s8": ("s8", "u8"), "u8": ("s8", "u8")}
D = {"bf16": ("f32",), "tf32": ("f32",), "s8": ("s32",), "u8": ("s32",)}


class Watched:
    """Registers that products and loads in flight use: no other instruction of the entry may access them meanwhile.

    Registers that the same products use as the same operand are a set, which has a number.
    """

    def __init__(self, entry: Entry):
        users: dict[str, list[tuple[int, int]]] = {}
        for n, each in enumerate(entry.body):
            if isinstance(each, Instruction) and each.opcode.startswith(LATE):
                for place, operand in enumerate(each.operands):
                    for register in registers(operand) if isinstance(operand, Vector) else ():
                        users.setdefault(register.name, []).append((n, place))
        sets: dict[tuple[tuple[int, int], ...], int] = {}
        self.numbers = {name: sets.setdefault(tuple(used), len(sets)) for name, used in users.items()}
        self.count = len(sets)

    def sets(self, used: Iterable[Register]) -> list[int]:
        """Return the numbers of the sets that have these registers."""
        return list(dict.fromkeys(self.numbers[each.name] for each in used if each.name in self.numbers))

    def accessed(self, i: Instruction) -> str:
        """Return the statement that says that an instruction accesses registers that products use; or none."""
        if not self.count or i.opcode.startswith(("wgmma.", *LATE)):
            return ""
        numbers = self.sets(register for each in i.operands for register in registers(each))
        return f'accessed(t, "{i.text}", {", ".join(map(str, numbers))}); ' if numbers else ""


def registers(operand: Operand | None) -> tuple[Register, ...]:
    """Return all registers of an operand."""
    if isinstance(operand, Register):
        return (operand,)
    parts: tuple[Operand | None, ...] = ()
    if isinstance(operand, Vector):
        parts = operand.parts
    elif isinstance(operand, Pair):
        parts = (operand.first, operand.second)
    elif isinstance(operand, Address):
        parts = (operand.base,)
    elif isinstance(operand, Box):
        parts = (operand.map, operand.coordinates)
    return tuple(register for part in parts for register in registers(part))


def warpgroup(i: Instruction, w: Writer, watched: Watched) -> Meeting:
    """Return the meeting of a warp at an instruction of its warpgroup."""
    if not w.module.target.endswith("90a"):
        raise PtxError(f"{i.opcode} on {w.module.target}")
    q = Qualifiers(i.opcode)
    action = q.take("fence", "mma_async", "commit_group", "wait_group")
    if not q.take("sync") or not q.take("aligned"):
        raise NotExecutedError(i.opcode)
    if action == "mma_async":
        return _product(i, q, w, watched)
    q.end()
    if action == "wait_group":
        (left,) = operands(i, 1)
        return Meeting("WARP", "AWAIT_PRODUCTS", True, "", detail=(_number(left, range(8)),))
    operands(i, 0)
    return Meeting("WARP", {"fence": "FENCE_PRODUCTS", "commit_group": "COMMIT_PRODUCTS"}[action], True, "")


def _product(i: Instruction, q: Qualifiers, w: Writer, watched: Watched) -> Meeting:
    saturated = bool(q.take("satfinite"))
    shape, *types = q.left
    found = re.fullmatch(r"m64n(\d+)k(\d+)", shape)
    if found is None or len(types) != 3 or types[1] not in K:
        raise NotExecutedError(i.opcode)
    (d_type, a_type, b_type), n, k = types, int(found[1]), int(found[2])
    whole = d_type == "s32"
    steps = n % 8 == 0 and (n % 16 == 0 or n < 32 or not whole)
    if not 8 <= n <= 256 or not steps or k != K[a_type] or saturated > whole:
        raise PtxError(f"{i.opcode}: no such shape")
    if b_type not in B.get(a_type, (a_type,)) or d_type not in D.get(a_type, ("f16", "f32")):
        raise PtxError(f"{i.opcode}: no such types")
    held = len(i.operands) > 1 and isinstance(i.operands[1], Vector)
    turned = a_type in ("f16", "bf16")
    d, a, b, kept, *constants = operands(i, 4 + (0 if whole else 2) + ((1 if held else 2) if turned else 0))
    scales = [_number(each, (-1, 1)) for each in constants[:2]] or [1, 1]
    across = [_number(each, (0, 1)) for each in constants[2:]]
    across = [*[0] * (2 - len(across)), *across]
    sums = w.parts(d, n // 4 if d_type == "f16" else n // 2)
    factors = w.parts(a, 4) if held else ()
    used = [each for each in (*sums, *factors) if isinstance(each, Register) and each.bits == 32]
    if len(used) < len(sums) + len(factors) or len(set(sums)) < len(sums):
        raise PtxError(f"{i.opcode}: registers")
    if isinstance(kept, Immediate):
        _number(kept, (0, 1))
    flags = ", ".join(str(int(each)) for each in (saturated, scales[0] < 0, scales[1] < 0, *across))
    kinds = ", ".join(each.upper() for each in types)
    before = "" if held else f"t.in[0] = {w.read(a, 'b64')}; "
    before += f"t.in[1] = {w.read(b, 'b64')}; t.in[2] = {w.read(kept, 'pred')};"
    sets = [watched.sets(used[: len(sums)]), watched.sets(used[len(sums) :])]
    return Meeting(
        "WARP",
        "ISSUE_PRODUCT",
        True,
        before,
        product=f"{kinds}, {n}, {k}, {flags}, {len(sums)}, {len(factors)}",
        offsets=tuple(f"offsetof(Registers_{w.entry.name}, {w.register(each)[2:]})" for each in used),
        sets=(sets[0], sets[1]),
    )


def _number(operand: Operand, among: range | tuple[int, ...]) -> int:
    if not isinstance(operand, Immediate) or operand.bits or operand.value not in among:
        raise PtxError(f"{operand} is not among {tuple(among)}")
    return operand.value
