"""Instructions on one thread's registers, as C++ (PTX ISA, chapters 9.7.1 to 9.7.9 without loads and stores)."""

from collections.abc import Callable

from .conversions import FLOATS, PAIRS, convert, finish, to_generic
from .parse import BITS, Immediate, Instruction, NotExecutedError, Pair, Vector
from .writer import Qualifiers, Writer, operands

COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
UNORDERED = {f"{name}u": (name, symbol) for name, symbol in COMPARISONS.items()}
UNSIGNED = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}

Emit = Callable[[Instruction, Writer], str]


def _float(w: Writer, q: Qualifiers, operand: object, kind: str, flush: str) -> str:
    value = w.read(operand, kind)  # type: ignore[arg-type]
    return f"flushed({value})" if flush else value


def _arithmetic(i: Instruction, w: Writer) -> str:
    """add, sub, mul, mad, fma."""
    q = Qualifiers(i.opcode)
    if q.left[-1] in PAIRS:
        return _pairs(i, w, q)
    if q.name == "fma" and q.left[-1] == "f32x2":
        return _fused_floats(i, w, q)
    kind = q.type()
    ternary = q.name in ("mad", "fma")
    d, *sources = operands(i, 4 if ternary else 3)
    if kind not in FLOATS:
        return _integers(i, w, q, kind)
    rounding, flush, saturate = q.rounding() or "NEAREST", q.take("ftz"), q.take("sat")
    q.end()
    if rounding == "AWAY" or (kind == "f64" and (flush or saturate)):
        raise NotExecutedError(i.opcode)
    values = [_float(w, q, each, kind, flush) for each in sources]
    if ternary:
        value = f"fused({', '.join(values)}, {rounding})"
    elif q.name == "mul":
        value = f"multiplied({values[0]}, {values[1]}, {rounding})"
    else:
        value = f"added({values[0]}, {'-' if q.name == 'sub' else ''}{values[1]}, {rounding})"
    return w.write(d, kind, finish(kind, value, flush, saturate))


def _pairs(i: Instruction, w: Writer, q: Qualifiers) -> str:
    """fma of two halves, and add, sub and mul as an fma with 1 or 0."""
    kind = q.left.pop()
    q.rounding()
    q.end()
    half, one = ("f16", 0x3C003C00) if kind == "f16x2" else ("bf16", 0x3F803F80)
    d, *sources = operands(i, 4 if q.name == "fma" else 3)
    a, b, *rest = [w.read(each, "b32") for each in sources]
    forms = {
        "fma": lambda: f"{a}, {b}, {rest[0]}",
        "mul": lambda: f"{a}, {b}, 0x80008000u",
        "add": lambda: f"{a}, {one:#x}u, {b}",
        "sub": lambda: f"{b} ^ 0x80008000u, {one:#x}u, {a}",
    }
    if q.name not in forms:
        raise NotExecutedError(i.opcode)
    return w.write(d, "b32", f"halves(fma_{half}, {forms[q.name]()})")


def _fused_floats(i: Instruction, w: Writer, q: Qualifiers) -> str:
    """fma of two floats."""
    q.left.pop()
    rounding = q.rounding()
    q.end()
    if rounding in ("", "AWAY"):
        raise NotExecutedError(i.opcode)
    d, *sources = operands(i, 4)
    return w.write(d, "b64", f"fused_pair({', '.join(w.read(each, 'b64') for each in sources)}, {rounding})")


def _integers(i: Instruction, w: Writer, q: Qualifiers, kind: str) -> str:
    d, *sources = i.operands
    if kind[0] not in "su":
        raise NotExecutedError(i.opcode)
    bits = BITS[kind]
    a, b = (w.read(each, kind) for each in sources[:2])
    if q.name in ("add", "sub"):
        q.end()
        return w.write(d, kind, f"(u{bits})((u{bits}){a} {'+' if q.name == 'add' else '-'} (u{bits}){b})")
    part = q.take("lo", "hi", "wide")
    q.end()
    if q.name == "fma" or not part or (part == "wide" and bits == 64):
        raise NotExecutedError(i.opcode)
    result = f"{kind[0]}{2 * bits}" if part == "wide" else kind
    product = f"((u64)({kind[0]}64){a} * (u64)({kind[0]}64){b})"  # modulo 2^64: signs are extended first
    if part == "hi":
        product = f"high_product<{kind}>({a}, {b})"
    if q.name == "mad":
        product = f"((u64){product} + (u64){w.read(sources[2], result)})"
    return w.write(d, result, product)


def _divide(i: Instruction, w: Writer) -> str:
    """div and rem."""
    q = Qualifiers(i.opcode)
    kind = q.type()
    d, a, b = operands(i, 3)
    if kind in FLOATS:
        if q.name == "rem" or not q.take("rn", "full", "approx"):
            raise NotExecutedError(i.opcode)
        flush = q.take("ftz")
        q.end()
        value = f"{_float(w, q, a, kind, flush)} / {_float(w, q, b, kind, flush)}"
        return w.write(d, kind, finish(kind, f"({value})", flush, ""))
    q.end()
    function = "quotient" if q.name == "div" else "remainder_of"
    return w.write(d, kind, f"{function}<{kind}>({w.read(a, kind)}, {w.read(b, kind)})")


def _extreme(i: Instruction, w: Writer) -> str:
    """min and max."""
    q = Qualifiers(i.opcode)
    kind = q.type()
    d, a, b = operands(i, 3)
    flush, nan = q.take("ftz"), q.take("NaN")
    q.end()
    if kind not in FLOATS:
        if flush or nan:
            raise NotExecutedError(i.opcode)
        return w.write(d, kind, f"std::{q.name}<{kind}>({w.read(a, kind)}, {w.read(b, kind)})")
    x, y = _float(w, q, a, kind, flush), _float(w, q, b, kind, flush)
    value = f"{'least' if q.name == 'min' else 'greatest'}({x}, {y})"
    return w.write(d, kind, f"nan_or({x}, {y}, {value})" if nan else value)


def _unary(i: Instruction, w: Writer) -> str:
    """neg and abs."""
    q = Qualifiers(i.opcode)
    if q.left[-1] in PAIRS and q.name == "neg":
        return w.write(i.operands[0], "b32", f"{w.read(i.operands[1], 'b32')} ^ 0x80008000u")
    kind = q.type()
    d, a = operands(i, 2)
    flush = q.take("ftz")
    q.end()
    if kind in FLOATS:
        value = _float(w, q, a, kind, flush)
        return w.write(d, kind, f"-{value}" if q.name == "neg" else f"std::fabs({value})")
    bits, value = BITS[kind], w.read(a, kind)
    negated = f"(u{bits})(0 - (u{bits}){value})"
    return w.write(d, kind, negated if q.name == "neg" else f"{value} < 0 ? ({kind}){negated} : {value}")


NEAR = {
    "ex2": "exp2_near",
    "lg2": "log2_near",
    "tanh": "tanh_near",
    "rsqrt": "rsqrt_near",
    "sin": "sin_near",
    "cos": "cos_near",
}


def _function(i: Instruction, w: Writer) -> str:
    """rcp, sqrt, and the approximations."""
    q = Qualifiers(i.opcode)
    kind = q.type()
    d, a = operands(i, 2)
    if kind not in FLOATS or not q.take("rn", "approx"):
        raise NotExecutedError(i.opcode)
    approximate, flush = "approx" in i.opcode, q.take("ftz")
    q.end()
    x = _float(w, q, a, kind, flush)
    if q.name == "rcp" and kind == "f64" and approximate:
        value = f"gross_reciprocal({x})"
    elif q.name == "rcp":
        value = f"(1 / {x})"
    elif q.name == "sqrt":
        value = f"std::sqrt({x})"
    elif kind == "f32" and approximate:
        value = f"{NEAR[q.name]}({x})"
    else:
        raise NotExecutedError(i.opcode)
    return w.write(d, kind, finish(kind, value, flush, ""))


def _logic(i: Instruction, w: Writer) -> str:
    """and, or, xor, not."""
    q = Qualifiers(i.opcode)
    kind = q.type()
    q.end()
    if kind[0] not in "bp":
        raise NotExecutedError(i.opcode)
    if q.name == "not":
        d, a = operands(i, 2)
        return w.write(d, kind, f"{'!' if kind == 'pred' else '~'}{w.read(a, kind)}")
    d, a, b = operands(i, 3)
    symbol = {"and": "&", "or": "|", "xor": "^"}[q.name]
    return w.write(d, kind, f"{w.read(a, kind)} {symbol} {w.read(b, kind)}")


def _shift(i: Instruction, w: Writer) -> str:
    """shl and shr: by more than the bits, nothing or the sign is left."""
    q = Qualifiers(i.opcode)
    kind = q.type()
    q.end()
    d, a, by = operands(i, 3)
    return w.write(d, kind, f"shifted_{'left' if q.name == 'shl' else 'right'}({w.read(a, kind)}, {w.read(by, 'u32')})")


def _funnel(i: Instruction, w: Writer) -> str:
    q = Qualifiers(i.opcode)
    kind, left, wrap = q.type(), q.take("l", "r") == "l", q.take("wrap", "clamp") == "wrap"
    q.end()
    d, a, b, c = operands(i, 4)
    values = ", ".join(w.read(each, "u32") for each in (a, b, c))
    return w.write(d, kind, f"funnel({values}, {str(left).lower()}, {str(wrap).lower()})")


def _bit_field(i: Instruction, w: Writer) -> str:
    """bfi and bfe."""
    q = Qualifiers(i.opcode)
    kind = q.type()
    q.end()
    d, *sources, position, length = operands(i, 5 if q.name == "bfi" else 4)
    values = [w.read(each, kind) for each in sources] + [w.read(position, "u32"), w.read(length, "u32")]
    return w.write(d, kind, f"{'field_inserted' if q.name == 'bfi' else 'field_extracted'}({', '.join(values)})")


def _words(i: Instruction, w: Writer) -> str:
    """prmt, lop3, popc, clz, brev: words of bits."""
    q = Qualifiers(i.opcode)
    kind = q.type()
    q.end()
    d, *sources = i.operands
    values = [w.read(each, kind) for each in sources]
    if kind != "b32":
        raise NotExecutedError(i.opcode)
    forms = {
        "prmt": ("permuted", 3),
        "lop3": ("looked_up", 4),
        "popc": ("std::popcount", 1),
        "clz": ("std::countl_zero", 1),
    }
    function, count = forms[q.name]
    operands(i, count + 1)
    return w.write(d, "u32", f"{function}({', '.join(values)})")


def _dot(i: Instruction, w: Writer) -> str:
    q = Qualifiers(i.opcode)
    kind_b, kind_a = q.type(), q.type()
    q.end()
    d, a, b, c = operands(i, 4)
    signs = ", ".join(str(kind == "s32").lower() for kind in (kind_a, kind_b))
    return w.write(d, "s32", f"dot_bytes({w.read(a, 'u32')}, {w.read(b, 'u32')}, {w.read(c, 's32')}, {signs})")


def _select(i: Instruction, w: Writer) -> str:
    q = Qualifiers(i.opcode)
    kind = q.type()
    q.end()
    d, a, b, p = operands(i, 4)
    return _copy(w, d, kind, f"{w.read(p, 'pred')} ? {_bits(w, a, kind)} : {_bits(w, b, kind)}")


def _bits(w: Writer, operand: object, kind: str) -> str:
    """Return the bits of an operand, which a move must not change: a NaN keeps its payload."""
    if isinstance(operand, Immediate) and operand.bits:
        return w.read(Immediate(operand.value), f"b{operand.bits}")
    return w.read(operand, "pred" if kind == "pred" else f"b{BITS[kind]}")  # type: ignore[arg-type]


def _copy(w: Writer, d: object, kind: str, value: str) -> str:
    return w.write(d, "pred" if kind == "pred" else f"b{BITS[kind]}", value)  # type: ignore[arg-type]


def _move(i: Instruction, w: Writer) -> str:
    """mov, of vectors too: packing and unpacking, the first part lowest."""
    q = Qualifiers(i.opcode)
    kind = q.type()
    q.end()
    d, a = operands(i, 2)
    bits = BITS[kind]
    if isinstance(d, Vector):
        width = bits // len(d.parts)
        whole = w.read(a, kind)
        writes = [w.write(part, f"b{width}", f"whole >> {width * n}") for n, part in enumerate(d.parts) if part]
        return f"const u{bits} whole = {whole}; {' '.join(writes)}"
    if isinstance(a, Vector):
        width = bits // len(a.parts)
        parts = [f"(u{bits}){w.read(part, f'b{width}')} << {width * n}" for n, part in enumerate(a.parts)]
        return w.write(d, f"b{bits}", " | ".join(parts))
    return _copy(w, d, kind, _bits(w, a, kind))


def _compare(w: Writer, q: Qualifiers, kind: str, a: object, b: object, flush: str) -> str:
    name = q.left.pop(0)
    if kind in FLOATS:
        x, y = _float(w, q, a, kind, flush), _float(w, q, b, kind, flush)
        unordered = f"({x} != {x} || {y} != {y})"
        if name in COMPARISONS:
            return f"({x} {COMPARISONS[name]} {y}" + (f" && !{unordered})" if name == "ne" else ")")
        if name in UNORDERED:
            return f"({unordered} || {x} {UNORDERED[name][1]} {y})"
        if name in ("num", "nan"):
            return f"({'!' if name == 'num' else ''}{unordered})"
        raise NotExecutedError(q.opcode)
    symbols = COMPARISONS if kind[0] == "s" else COMPARISONS | UNSIGNED
    if name not in symbols or (kind[0] == "b" and name not in ("eq", "ne")) or flush:
        raise NotExecutedError(q.opcode)
    return f"({w.read(a, kind)} {symbols[name]} {w.read(b, kind)})"  # type: ignore[arg-type]


def _set_predicate(i: Instruction, w: Writer) -> str:
    """setp, of one predicate or p|q, joined with a third by and, or, xor."""
    q = Qualifiers(i.opcode)
    kind, flush, joined = q.type(), q.take("ftz"), q.take("and", "or", "xor")
    d, a, b, *c = operands(i, 4 if joined else 3)
    value = _compare(w, q, kind, a, b, flush)
    q.end()
    if joined:
        symbol = {"and": "&", "or": "|", "xor": "^"}[joined]
        value = f"({value} {symbol} {w.read(c[0], 'pred')})"
    if isinstance(d, Pair):
        if joined:
            raise NotExecutedError(i.opcode)
        return f"const bool found = {value}; {w.write(d.first, 'pred', 'found')} {w.write(d.second, 'pred', '!found')}"
    return w.write(d, "pred", value)


SCALARS: dict[str, Emit] = {
    **dict.fromkeys(("add", "sub", "mul", "mad", "fma"), _arithmetic),
    **dict.fromkeys(("div", "rem"), _divide),
    **dict.fromkeys(("min", "max"), _extreme),
    **dict.fromkeys(("neg", "abs"), _unary),
    **dict.fromkeys(("rcp", "sqrt", *NEAR), _function),
    **dict.fromkeys(("and", "or", "xor", "not"), _logic),
    **dict.fromkeys(("shl", "shr"), _shift),
    **dict.fromkeys(("bfi", "bfe"), _bit_field),
    **dict.fromkeys(("prmt", "lop3", "popc", "clz"), _words),
    "shf": _funnel,
    "dp4a": _dot,
    "selp": _select,
    "mov": _move,
    "setp": _set_predicate,
    "cvt": convert,
    "cvta": to_generic,
}
