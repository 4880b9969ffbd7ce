"""cvt and cvta as C++ (PTX ISA, chapter 9.7.9)."""

from .parse import Instruction, NotExecutedError, Register
from .writer import Qualifiers, Writer, operands

FLOATS = ("f32", "f64")
PAIRS = ("f16x2", "bf16x2")


def finish(kind: str, value: str, flush: str, saturate: str) -> str:
    """Return a value after .ftz and .sat."""
    value = f"flushed({value})" if flush else value
    return f"saturated({value})" if saturate else value


#: formats of cvt other than the integers: how a value becomes a double or float, and how one is rounded to it
SMALL = {"f16": ("f32_of_f16", "f16_of"), "bf16": ("f32_of_bf16", "bf16_of")}


def convert(i: Instruction, w: Writer) -> str:
    """cvt."""
    q = Qualifiers(i.opcode)
    source, target = q.left.pop(), q.left.pop()
    if "x2" in target or "x2" in source:
        return _convert_pair(i, w, q, target, source)
    whole, rounding = q.rounding(whole=True), q.rounding()
    flush, saturate = q.take("ftz"), q.take("sat")
    q.end()
    d, a = operands(i, 2)
    if target == "tf32":
        if source != "f32" or rounding != "AWAY" or flush or saturate:
            raise NotExecutedError(i.opcode)
        return w.write(d, "b32", f"tf32_of({w.read(a, 'f32')})")
    if source in SMALL:
        value = f"{SMALL[source][0]}({w.read(a, 'b16')})"
    else:
        value = w.read(a, source, wider=source not in FLOATS)
    if source in FLOATS and flush:
        value = f"flushed({value})"
    from_float = source in (*FLOATS, *SMALL)
    if target in FLOATS:
        return w.write(d, target, _to_float(i, target, source, value, whole, rounding, flush, saturate))
    if target in SMALL:
        if flush or saturate or whole:
            raise NotExecutedError(i.opcode)
        return w.write(d, "b16", f"{SMALL[target][1]}({value}, {rounding or 'NEAREST'})")
    if from_float:
        if not whole:
            raise NotExecutedError(i.opcode)
        return w.write(d, target, f"integer_of<{target}>({value}, {whole})", wider=True)
    if whole or rounding or flush:
        raise NotExecutedError(i.opcode)
    return w.write(d, target, f"clamped<{target}>({value})" if saturate else value, wider=True)


def _to_float(
    i: Instruction, target: str, source: str, value: str, whole: str, rounding: str, flush: str, sat: str
) -> str:
    if source in (*FLOATS, *SMALL):
        if whole:
            value = f"whole_float({value}, {whole})"
        elif target == "f32" and source == "f64":
            if not rounding:
                raise NotExecutedError(i.opcode)
            value = f"(f32){value}" if rounding == "NEAREST" else f"directed_f32({value}, {rounding})"
        elif rounding:
            raise NotExecutedError(i.opcode)
    elif not rounding or rounding == "AWAY":
        raise NotExecutedError(i.opcode)
    elif rounding == "NEAREST":
        value = f"({target}){value}"
    else:
        value = f"directed_{target}(({source[0]}64){value}, {rounding})"
    return finish(target, f"({target}){value}", flush, sat)


def _convert_pair(i: Instruction, w: Writer, q: Qualifiers, target: str, source: str) -> str:
    """Two numbers at once: the first source, or the upper part, is the upper one."""
    if q.take("rn") != "rn":
        raise NotExecutedError(i.opcode)
    if target in PAIRS and source == "f32":
        q.end()
        d, high, low = operands(i, 3)
        function = SMALL[target[:-2]][1]
        upper, lower = (f"(u32){function}({w.read(each, 'f32')})" for each in (high, low))
        return w.write(d, "b32", f"{upper} << 16 | {lower}")
    if target == "f16x2" and source in ("e4m3x2", "e5m2x2"):
        q.end()
        d, a = operands(i, 2)
        pair, function = w.read(a, "b16"), f"f16_of_{source[:-2]}"
        return w.write(d, "b32", f"(u32){function}((u8)({pair} >> 8)) << 16 | {function}((u8){pair})")
    raise NotExecutedError(i.opcode)


def to_generic(i: Instruction, w: Writer) -> str:
    """cvta: between a space and generic addresses."""
    q = Qualifiers(i.opcode)
    kind, back, space = q.type(), q.take("to"), q.take("global", "shared", "local", "param")
    q.end()
    d, a = operands(i, 2)
    windows = {"global": "0ull", "shared": "SHARED_WINDOW", "local": "LOCAL_WINDOW", "param": "PARAM_WINDOW"}
    if kind != "u64" or not space or (isinstance(d, Register) and d.bits != 64):
        raise NotExecutedError(i.opcode)
    return w.write(d, kind, f"{w.read(a, kind)} {'-' if back else '+'} {windows[space]}")
