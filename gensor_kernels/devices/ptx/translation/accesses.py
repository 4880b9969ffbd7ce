"""Loads, stores, atomics and asynchronous copies, as C++ (PTX ISA, chapters 9.7.9 and 9.7.13)."""

from .parse import BITS, Immediate, Instruction, NotExecutedError, Operand, PtxError, Register
from .writer import Qualifiers, Writer, operands

SPACES = ("global", "shared", "shared::cta", "local", "param", "const")
SCOPES = ("cta", "cluster", "gpu", "sys")
CACHES = ("ca", "cg", "cs", "lu", "cv", "wb", "wt")
PREFETCHES = ("L2::64B", "L2::128B", "L2::256B")


def _place(w: Writer, space: str, address: str, count: int, write: bool) -> str:
    """Return the host's address of `count` bytes, checked against the bounds of their space."""
    forms = {
        "global": f"global_at(t, {address}, {count}, {str(write).lower()})",
        "shared": f"shared_at(t, {address}, {count}, {str(write).lower()})",
        "local": f"local_at<{w.local_bytes}>(t, {address}, {count})",
        "param": f"param_at(t, {address}, {count})",
        "const": f"const_at(t, {address}, {count})",
        "": f"generic_at<{w.local_bytes}>(t, {address}, {count}, {str(write).lower()})",
    }
    return forms[space]


def _accessed(w: Writer, address: Operand, space: str, count: int, write: bool, access: str) -> str:
    """Statements that check an access and name the host's address `at`; `access`: its entry for the rules of order."""
    return (
        f"const u64 address = {w.address(address)}; "
        f'aligned_to(address, {count}, "{space or "generic"}"); '
        f"u8* const at = {_place(w, space, 'address', count, write)};"
        + (f" in_order(t, address, {access});" if access else "")
    )


def _how(*, reads: bool = False, writes: bool = False, order: str = "", read_only: str = "") -> str:
    """Return the flags of machine.h; a volatile access is relaxed, of the scope of the system (chapter 8.4)."""
    flags = {
        "READS": reads,
        "WRITES": writes,
        "STRONG": order not in ("", "weak"),
        "ACQUIRES": order in ("acquire", "acq_rel"),
        "RELEASES": order in ("release", "acq_rel"),
        "NONCOHERENT": bool(read_only),
    }
    return " | ".join(name for name, given in flags.items() if given)


def _qualified(i: Instruction, w: Writer, q: Qualifiers, write: bool) -> tuple[str, str, int, str, str]:
    """(order, space, elements, type, entry in the table of accesses) of a load or store."""
    kind = q.type()
    order = q.take("weak", "volatile", "relaxed", "release" if write else "acquire")
    scope, space = q.take(*SCOPES), q.take(*SPACES).removesuffix("::cta")
    if bool(scope) != (order in ("relaxed", "acquire", "release")):
        raise NotExecutedError(i.opcode)
    cached, read_only = q.take(*CACHES), "" if write else q.take("nc")
    q.take(*PREFETCHES)
    count = int((q.take("v2", "v4") or "v1")[1:])
    q.end()
    if count * BITS[kind] > 128 or (read_only and (space != "global" or order)) or (cached and order):
        raise NotExecutedError(i.opcode)
    if write and (space in ("param", "const") or cached in ("ca", "lu", "cv")):
        raise NotExecutedError(i.opcode)
    access, each = "", BITS[kind] // 8
    if space not in ("local", "param", "const"):
        how = _how(reads=not write, writes=write, order=order, read_only=read_only)
        access = w.access(i, space, count * each, each, how, scope or ("sys" if order else "cta"))
    return order, space, count, kind, access


def load(i: Instruction, w: Writer) -> tuple[str, bool]:
    """Return the statements of a load, and whether another thread should run first, because it may be waited for."""
    q = Qualifiers(i.opcode)
    order, space, count, kind, access = _qualified(i, w, q, write=False)
    d, address = operands(i, 2)
    each = BITS[kind] // 8
    bits = kind if kind[0] in "su" else f"b{BITS[kind]}"
    stored = bits if bits[0] in "su" else f"u{BITS[kind]}"
    parts = w.parts(d, count)
    writes = [w.write(p, bits, f"value{n}", wider=kind[0] != "f") for n, p in enumerate(parts) if p is not None]
    reads = [
        f"const {stored} value{n} = loaded<{stored}>(at + {n * each});" for n, p in enumerate(parts) if p is not None
    ]
    text = f"{_accessed(w, address, space, count * each, False, access)} {' '.join(reads)} {' '.join(writes)}"
    return text, order in ("acquire", "volatile", "relaxed")


def store(i: Instruction, w: Writer) -> str:
    """Return the statements of a store."""
    q = Qualifiers(i.opcode)
    _, space, count, kind, access = _qualified(i, w, q, write=True)
    address, values = operands(i, 2)
    bits = BITS[kind]
    writes = [
        f"stored<u{bits}>(at + {n * bits // 8}, (u{bits})({_stored_bits(w, part, kind)}));"
        for n, part in enumerate(w.parts(values, count))
    ]
    return f"{_accessed(w, address, space, count * bits // 8, True, access)} {' '.join(writes)}"


def _stored_bits(w: Writer, operand: Operand | None, kind: str) -> str:
    if isinstance(operand, Immediate) and operand.bits:
        if operand.bits != BITS[kind]:
            raise PtxError(f"{operand} as .{kind}")
        return w.read(Immediate(operand.value), f"b{operand.bits}")
    return w.read(operand, f"b{BITS[kind]}", wider=kind[0] != "f")


def atomic(i: Instruction, w: Writer) -> str:
    """Return the statements of atom or red: one thread runs at a time, so nothing comes between."""
    q = Qualifiers(i.opcode)
    kind = q.type()
    action = q.take("add", "min", "max", "and", "or", "xor", "exch", "cas")
    order, scope = q.take("relaxed", "acquire", "release", "acq_rel") or "relaxed", q.take(*SCOPES) or "gpu"
    space = q.take("global", "shared", "shared::cta").removesuffix("::cta")
    q.end()
    d, address, *values = i.operands if q.name == "atom" else (None, *i.operands)
    if len(values) != (2 if action == "cas" else 1) or address is None or not action:
        raise NotExecutedError(i.opcode)
    bits, whole = BITS[kind], kind in ("f32", "f64")
    new = w.read(values[0], kind)
    was = f"{kind}_of(before)" if whole else f"({kind if kind[0] in 'su' else f'u{bits}'})before"
    forms = {"add": f"{was} + {new}", "exch": new, "min": f"std::min({was}, {new})", "max": f"std::max({was}, {new})"}
    forms |= {name: f"{was} {symbol} {new}" for name, symbol in (("and", "&"), ("or", "|"), ("xor", "^"))}
    if action == "cas":
        forms["cas"] = f"{was} == {new} ? {w.read(values[1], kind)} : {was}"
    after = f"bits_of(({kind})({forms[action]}))" if whole else f"(u{bits})({forms[action]})"
    result = w.write(d, f"b{bits}", "before") if d else ""
    exchange = f"const u{bits} before = loaded<u{bits}>(at); stored<u{bits}>(at, {after});"
    access = w.access(i, space, bits // 8, bits // 8, _how(reads=True, writes=True, order=order), scope)
    return f"{_accessed(w, address, space, bits // 8, True, access)} {exchange} {result}"


def asynchronous(i: Instruction, w: Writer) -> str:
    """Return the statements of cp.async, its commit_group, wait_group and wait_all."""
    if i.opcode == "cp.async.commit_group":
        return "commit_copies(t);"
    if i.opcode == "cp.async.wait_all":
        return "await_copies(t, 0, true);"
    if i.opcode == "cp.async.wait_group":
        (left,) = operands(i, 1)
        return f"await_copies(t, {_constant(i, left)}, false);"
    q = Qualifiers(i.opcode)
    if not q.take("async"):
        raise NotExecutedError(i.opcode)
    cached = q.take("ca", "cg")
    if not q.take("shared", "shared::cta") or not q.take("global") or not cached:
        raise NotExecutedError(i.opcode)
    q.take(*PREFETCHES)
    q.end()
    to, source, size, *read = operands(i, 3, 4)
    count = _constant(i, size)
    if count not in ((16,) if cached == "cg" else (4, 8, 16)):
        raise PtxError(f"{i.text}: {count} bytes")
    taken = w.read(read[0], "u32") if read else f"{count}u"
    access = w.access(i, "shared", count, count, "WRITES")
    return f"copy_async(t, (u32){w.address(to)}, {w.address(source)}, {count}u, {taken}, {access}.text);"


def _constant(i: Instruction, operand: Operand) -> int:
    if not isinstance(operand, Immediate) or isinstance(operand, Register):
        raise PtxError(f"{i.text}: not a constant")
    return operand.value
