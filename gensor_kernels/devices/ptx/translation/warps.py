"""Collective operations: barriers, shuffles, votes, matrices and mma (PTX ISA, chapters 9.7.9, 9.7.13 and 9.7.14).

A thread puts its operands into `t.in`, stops, and finds the result in `t.out` and `t.flag` when it continues.
"""

from dataclasses import dataclass

from .parse import Instruction, NotExecutedError, Operand, Pair, PtxError
from .writer import Qualifiers, Writer, operands


@dataclass(frozen=True)
class Meeting:
    """A place where threads meet: statements before and after, how the thread stops, and the site's properties."""

    stop: str  # WARP or BARRIER
    what: str
    aligned: bool
    before: str
    after: str = ""
    detail: tuple[int | str, ...] = ()
    product: str = ""  # of a warpgroup: the fields of a C++ Product
    offsets: tuple[str, ...] = ()  # of its registers
    sets: tuple[list[int], list[int]] = ([], [])  # of sums and of factors
    access: str = ""


def barrier(i: Instruction, w: Writer) -> Meeting:
    """bar.sync, barrier.sync, bar.warp.sync, and bar.red.or."""
    q = Qualifiers(i.opcode)
    if q.take("warp"):
        sync = q.take("sync")
        q.end()
        (mask,) = operands(i, 1)
        if not sync:
            raise NotExecutedError(i.opcode)
        return Meeting("WARP", "SYNC", False, f"t.mask = {w.read(mask, 'u32')};")
    q.take("cta")
    joins = bool(q.take("red"))
    known = q.type() == "pred" and q.take("or") if joins else q.take("sync")
    if not known:
        raise NotExecutedError(i.opcode)
    aligned = bool(q.take("aligned")) or q.name == "bar"
    q.end()
    vote, after = "", ""
    if joins:
        joined, number, *count, own = operands(i, 3, 4)
        vote, after = f"t.in[0] = {w.read(own, 'pred')}; ", w.write(joined, "pred", "t.flag")
    else:
        number, *count = operands(i, 1, 2)
    threads = w.read(count[0], "u32") if count else "0u"
    before = f"t.barrier = {w.read(number, 'u32')}; t.count = {threads}; "
    before += 'if (t.barrier > 15 || t.count % 32) fault("invalid", "barrier %u of %u threads", t.barrier, t.count);'
    return Meeting("BARRIER", "SYNC", aligned, vote + before, after)


def shuffle(i: Instruction, w: Writer) -> Meeting:
    """shfl.sync."""
    q = Qualifiers(i.opcode)
    mode = q.take("up", "down", "bfly", "idx")
    if not q.take("sync") or not mode or q.type() != "b32":
        raise NotExecutedError(i.opcode)
    q.end()
    d, a, b, c, mask = operands(i, 5)
    first, second = _both(d)
    before = "".join(f"t.in[{n}] = {w.read(each, 'u32')}; " for n, each in enumerate((a, b, c)))
    after = w.write(first, "b32", "t.out[0]") if first else ""
    after += w.write(second, "pred", "t.flag") if second else ""
    modes = {"up": "SHUFFLE_UP", "down": "SHUFFLE_DOWN", "bfly": "SHUFFLE_BUTTERFLY", "idx": "SHUFFLE_INDEX"}
    return Meeting("WARP", "SHUFFLE", False, f"{before}t.mask = {w.read(mask, 'u32')};", after, (modes[mode],))


def _both(d: Operand) -> tuple[Operand | None, Operand | None]:
    return (d.first, d.second) if isinstance(d, Pair) else (d, None)


def vote(i: Instruction, w: Writer) -> Meeting:
    """vote.sync."""
    q = Qualifiers(i.opcode)
    mode = q.take("ballot", "any", "all", "uni")
    kind = q.type()
    if not q.take("sync") or kind != ("b32" if mode == "ballot" else "pred"):
        raise NotExecutedError(i.opcode)
    q.end()
    d, a, mask = operands(i, 3)
    before = f"t.in[0] = {w.read(a, 'pred')}; t.mask = {w.read(mask, 'u32')};"
    after = w.write(d, kind, "t.out[0]" if mode == "ballot" else "t.flag")
    names = {"ballot": "BALLOT", "any": "ANY", "all": "ALL", "uni": "UNIFORM"}
    return Meeting("WARP", names[mode], False, before, after)


def reduction(i: Instruction, w: Writer) -> Meeting:
    """redux.sync of integers."""
    q = Qualifiers(i.opcode)
    kind = q.type()
    action = q.take("add", "min", "max", "and", "or", "xor")
    if not q.take("sync") or not action or kind not in (("b32",) if action in ("and", "or", "xor") else ("s32", "u32")):
        raise NotExecutedError(i.opcode)
    q.end()
    d, a, mask = operands(i, 3)
    before = f"t.in[0] = {w.read(a, 'u32')}; t.mask = {w.read(mask, 'u32')};"
    return Meeting("WARP", "REDUCE", False, before, w.write(d, kind, "t.out[0]"), (action.upper(), int(kind == "s32")))


def elected(i: Instruction, w: Writer) -> Meeting:
    """elect.sync."""
    if i.opcode != "elect.sync":
        raise NotExecutedError(i.opcode)
    d, mask = operands(i, 2)
    first, second = _both(d)
    after = (w.write(first, "b32", "t.out[0]") if first else "") + w.write(second, "pred", "t.flag")
    return Meeting("WARP", "ELECT", False, f"t.mask = {w.read(mask, 'u32')};", after)


def matrices(i: Instruction, w: Writer) -> Meeting:
    """ldmatrix of 8 x 8 matrices of 16 bits."""
    q = Qualifiers(i.opcode)
    needed = all(q.take(each) for each in ("sync", "aligned", "m8n8", "b16")) and q.take("shared", "shared::cta")
    count, transposed = int((q.take("x1", "x2", "x4") or "x0")[1:]), bool(q.take("trans"))
    q.end()
    if not needed or not count:
        raise NotExecutedError(i.opcode)
    d, address = operands(i, 2)
    after = " ".join(w.write(part, "b32", f"t.out[{n}]") for n, part in enumerate(w.parts(d, count)))
    access = w.access(i, "shared", 16, 2, "READS")
    before = f"t.in[0] = {w.address(address)};"
    return Meeting("WARP", "LOAD_MATRIX", True, before, after, (count, int(transposed)), access=access)


def stored_matrices(i: Instruction, w: Writer) -> Meeting:
    """stmatrix of 8 x 8 matrices of 16 bits."""
    q = Qualifiers(i.opcode)
    needed = all(q.take(each) for each in ("sync", "aligned", "m8n8", "b16")) and q.take("shared", "shared::cta")
    count, transposed = int((q.take("x1", "x2", "x4") or "x0")[1:]), bool(q.take("trans"))
    q.end()
    if not needed or not count or int(w.module.target.strip("sm_af")) < 90:
        raise NotExecutedError(i.opcode)
    address, values = operands(i, 2)
    before = f"t.in[0] = {w.address(address)}; "
    before += " ".join(f"t.in[{n + 1}] = {w.read(part, 'b32')};" for n, part in enumerate(w.parts(values, count)))
    access = w.access(i, "shared", 16, 2, "WRITES")
    return Meeting("WARP", "STORE_MATRIX", True, before, "", (count, int(transposed)), access=access)


#: (accumulator, factors) -> shapes that exist (m, n, k), the first sm that has them
SHAPES = {
    ("f32", "f16"): {(16, 8, 8): 75, (16, 8, 16): 80},
    ("f32", "bf16"): {(16, 8, 8): 80, (16, 8, 16): 80},
    ("f32", "tf32"): {(16, 8, 4): 80, (16, 8, 8): 80},
    ("f32", "e4m3"): {(16, 8, 32): 89},
    ("f32", "e5m2"): {(16, 8, 32): 89},
    ("f64", "f64"): {(8, 8, 4): 80, (16, 8, 4): 90, (16, 8, 8): 90, (16, 8, 16): 90},
    ("s32", "s8"): {(8, 8, 16): 75, (16, 8, 16): 80, (16, 8, 32): 80},
    ("s32", "u8"): {(8, 8, 16): 75, (16, 8, 16): 80, (16, 8, 32): 80},
}


def product(i: Instruction, w: Writer) -> Meeting:
    """mma.sync of dense matrices."""
    q = Qualifiers(i.opcode)
    name = next((part for part in q.left if part.startswith("m") and "n" in part), "")
    *rest, d_type, a_type, b_type, c_type = q.left
    if rest != ["sync", "aligned", name, "row", "col"] or d_type != c_type:
        raise NotExecutedError(i.opcode)
    m, n, k = (int(each) for each in name[1:].replace("n", " ").replace("k", " ").split())
    shapes, shapes_b = SHAPES.get((d_type, a_type), {}), SHAPES.get((d_type, b_type), {})
    mixed = a_type != b_type and {a_type, b_type} not in ({"s8", "u8"}, {"e4m3", "e5m2"})
    if (m, n, k) not in shapes or (m, n, k) not in shapes_b or mixed:
        raise NotExecutedError(i.opcode)
    if int(w.module.target.strip("sm_af")) < shapes[m, n, k]:
        raise PtxError(f"{i.opcode} on {w.module.target}")
    each = {"f16": 2, "bf16": 2, "tf32": 1, "f64": 1, "s8": 4, "u8": 4, "e4m3": 4, "e5m2": 4}[a_type]
    counts = (m // 8 * 2, m // 8 * k // (4 * each), k // (4 * each), m // 8 * 2)
    d, a, b, c = operands(i, 4)
    factor, total = ("f64", "f64") if a_type == "f64" else ("b32", d_type)
    sources = [(part, factor) for part in (*w.parts(a, counts[1]), *w.parts(b, counts[2]))]
    sources += [(part, total) for part in w.parts(c, counts[3])]
    before = "".join(f"t.in[{n}] = {_bits(w, part, kind)}; " for n, (part, kind) in enumerate(sources))
    after = " ".join(w.write(part, _word(total), f"t.out[{n}]") for n, part in enumerate(w.parts(d, counts[0])))
    return Meeting("WARP", "MULTIPLY", True, before, after, (m, k, a_type.upper(), b_type.upper()))


def _word(kind: str) -> str:
    return "b64" if kind == "f64" else "b32"


def _bits(w: Writer, operand: Operand | None, kind: str) -> str:
    value = w.read(operand, kind)
    return f"bits_of({value})" if kind in ("f32", "f64") else f"(u32){value}"


MEETINGS = {
    "bar": barrier,
    "barrier": barrier,
    "shfl": shuffle,
    "vote": vote,
    "redux": reduction,
    "elect": elected,
    "ldmatrix": matrices,
    "stmatrix": stored_matrices,
    "mma": product,
}
