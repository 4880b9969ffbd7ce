"""Products of block-scaled matrices by warps (PTX ISA 8.7, mma with .block_scale: 9.7.14.5.14, 9.7.14.3)."""

from collections.abc import Callable

from .parse import Instruction, NotExecutedError, PtxError
from .warps import Meeting
from .writer import Writer, operands

#: kind, scales of a row and their type -> shape, and types of factors
FORMS = {
    ("mxf8f6f4", "1X", "ue8m0"): ("m16n8k32", ("e4m3", "e5m2")),
    ("mxf4nvf4", "2X", "ue8m0"): ("m16n8k64", ("e2m1",)),
    ("mxf4nvf4", "4X", "ue4m3"): ("m16n8k64", ("e2m1",)),
}


def scaled(opcode: str) -> Callable[[Instruction, Writer], Meeting] | None:
    """Return what translates a product with scales, or None for another opcode."""
    return product if opcode.startswith("mma.") and ".block_scale." in opcode else None


def product(i: Instruction, w: Writer) -> Meeting:
    """mma.sync with block scales: d, a, b, c, scales of a, {byte, thread}, scales of b, {byte, thread}."""
    parts = i.opcode.split(".")
    if len(parts) != 14:
        raise NotExecutedError(i.opcode)
    shape, kind, vector, d_type, a_type, b_type, c_type, scale_type = (parts[3], parts[6], *parts[8:14])
    form = (kind.removeprefix("kind::"), vector.removeprefix("scale_vec::"), scale_type)
    known, factors = FORMS.get(form, ("", ()))
    fixed = [*parts[:3], *parts[4:6], parts[7], d_type, c_type]
    if fixed != ["mma", "sync", "aligned", "row", "col", "block_scale", "f32", "f32"] or shape != known:
        raise NotExecutedError(i.opcode)
    if a_type not in factors or b_type not in factors:
        raise NotExecutedError(i.opcode)
    if w.module.target.rstrip("af") not in ("sm_120", "sm_121") or w.module.target[-1] not in "af":
        raise PtxError(f"{i.opcode} on {w.module.target}")
    d, a, b, c, scales_a, place_a, scales_b, place_b = operands(i, 8)
    read = [w.read(part, "b32") for part in (*w.parts(a, 4), *w.parts(b, 2))]
    read += [f"bits_of({w.read(part, 'f32')})" for part in w.parts(c, 4)]
    for scales, place in ((scales_a, place_a), (scales_b, place_b)):
        read += [w.read(scales, "b32"), *(w.read(part, "u16") for part in w.parts(place, 2))]
    before = "".join(f"t.in[{n}] = {value}; " for n, value in enumerate(read))
    after = " ".join(w.write(part, "b32", f"t.out[{n}]") for n, part in enumerate(w.parts(d, 4)))
    detail = (int(form[1][0]), int(a_type == "e5m2"), int(b_type == "e5m2"))
    return Meeting("WARP", "MULTIPLY_SCALED", True, before, after, detail)
