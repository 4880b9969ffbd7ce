"""Instructions of tensor memory as C++ (PTX ISA, chapter 9.7.16)."""

from .parse import Address, Immediate, Instruction, NotExecutedError, Operand, PtxError, Register, Vector
from .warpgroups import Watched
from .warps import Meeting
from .writer import Qualifiers, Writer, operands

TARGETS = ("sm_100a", "sm_100f", "sm_103a", "sm_103f")
#: kinds of products, and targets that have them
KINDS = {"f16": TARGETS, "tf32": TARGETS, "f8f6f4": TARGETS, "i8": ("sm_100a",)}
#: kinds of scaled products, and their numbers of scales by row; a block is the elements of one scale
SCALED = {"mxf8f6f4": (1,), "mxf4": (2,), "mxf4nvf4": (2, 4)}
BLOCKS = {("mxf8f6f4", "block32"): 1, ("mxf4", "block32"): 2, ("mxf4nvf4", "block32"): 2, ("mxf4nvf4", "block16"): 4}
#: lanes of a move, columns and registers of each repetition
SHAPES = {"32x32b": (32, 1, 1), "16x128b": (16, 4, 2), "16x256b": (16, 8, 4)}


def tensor_memory(i: Instruction, w: Writer, watched: Watched) -> Meeting | str:
    """Return the statements of an instruction of one thread, or the meeting of a warp."""
    if w.module.target not in TARGETS:
        raise PtxError(f"{i.opcode} on {w.module.target}")
    q = Qualifiers(i.opcode)
    action = q.take(
        "alloc", "dealloc", "relinquish_alloc_permit", "mma", "cp", "commit", "ld", "st", "wait::ld", "wait::st",
        "fence::before_thread_sync", "fence::after_thread_sync",
    )  # fmt: skip
    if action.startswith("fence"):
        q.end()
        operands(i, 0)
        return f"fence_tensor(t, {str('before' in action).lower()});"
    if action == "mma":
        return _product(i, q, w)
    if action == "cp":
        return _copy(i, q, w)
    if action == "commit":
        return _commit(i, q, w)
    if not action or not q.take("sync") or not q.take("aligned"):
        raise NotExecutedError(i.opcode)
    if action in ("ld", "st"):
        return _move(i, q, w, watched, action == "ld")
    if action.startswith("wait"):
        q.end()
        operands(i, 0)
        return Meeting("WARP", "AWAIT_TENSOR", True, "", detail=(int(action == "wait::st"),))
    blocks = _blocks(i, q)
    if action == "relinquish_alloc_permit":
        q.end()
        operands(i, 0)
        return Meeting("WARP", "LAST_TENSOR", True, "", detail=(blocks,))
    shared = q.take("shared::cta")
    if not q.take("b32") or bool(shared) != (action == "alloc"):
        raise NotExecutedError(i.opcode)
    q.end()
    place, columns = operands(i, 2)
    address = w.address(place) if action == "alloc" else w.read(place, "u32")
    before = f"t.in[0] = {address}; t.in[1] = {w.read(columns, 'u32')};"
    access = w.access(i, "shared", 4, 4, "WRITES") if action == "alloc" else ""
    what = "ALLOCATE_TENSOR" if action == "alloc" else "FREE_TENSOR"
    return Meeting("WARP", what, True, before, detail=(blocks,), access=access)


def _blocks(i: Instruction, q: Qualifiers) -> int:
    group = q.take("cta_group::1", "cta_group::2")
    if not group:
        raise NotExecutedError(i.opcode)
    return int(group[-1])


def _taddr(w: Writer, operand: Operand) -> str:
    """Return an address in tensor memory: 32 bits in brackets."""
    if isinstance(operand, Address) and not (isinstance(operand.base, Register) and operand.base.bits == 32):
        raise PtxError(f"{operand} as an address in tensor memory")
    return f"(u32){w.address(operand)}"


def _product(i: Instruction, q: Qualifiers, w: Writer) -> str:
    blocks = _blocks(i, q)
    kind = q.take(*(f"kind::{name}" for name in KINDS | SCALED)).removeprefix("kind::")
    if not kind:
        raise NotExecutedError(i.opcode)
    scales = _scales(i, q, w, kind)
    q.end()
    if w.module.target not in KINDS.get(kind, TARGETS):
        raise PtxError(f"{i.opcode} on {w.module.target}")
    d, a, b, descriptor, *rest = i.operands
    held = isinstance(a, Address)
    given = [rest.pop(0) for _ in range(2)] if scales else []
    if rest and isinstance(rest[0], Vector):
        raise NotExecutedError(f"{i.opcode} with disable-output-lane")
    if len(rest) > 1:
        raise NotExecutedError(f"{i.opcode} with scale-input-d")
    (kept,) = rest
    return (
        f'issue_umma(t, {{"{i.text[:100]}", UmmaKind::{kind.upper()}, {blocks}, {str(held).lower()}, {_taddr(w, d)}, '
        f"{_taddr(w, a) if held else w.read(a, 'b64')}, "
        f"{w.read(b, 'b64')}, {w.read(descriptor, 'b32')}, {w.read(kept, 'pred')}, {scales}u"
        f"{''.join(f', {_taddr(w, each)}' for each in given)}}});"
    )


def _scales(i: Instruction, q: Qualifiers, w: Writer, kind: str) -> int:
    """Return how many scales a row of 32 bytes has; 0 without."""
    if bool(q.take("block_scale")) != (kind in SCALED):
        raise NotExecutedError(i.opcode)
    block, vector = q.take("block16", "block32"), q.take("scale_vec::1X", "scale_vec::2X", "scale_vec::4X")
    if kind not in SCALED:
        return 0
    if vector and not w.module.target.endswith("a"):
        raise PtxError(f"{i.opcode} on {w.module.target}")
    scales = int(vector[-2]) if vector else BLOCKS.get((kind, block), 2 * (kind == "mxf4" and not block))
    if scales not in SCALED[kind] or (vector and block):
        raise PtxError(f"{i.opcode}: no such scales")
    return scales


def _copy(i: Instruction, q: Qualifiers, w: Writer) -> str:
    blocks = _blocks(i, q)
    if not q.take("32x128b") or not q.take("warpx4"):
        raise NotExecutedError(i.opcode)
    q.end()
    to, tile = operands(i, 2)
    return f'copy_to_tensor(t, {_taddr(w, to)}, {w.read(tile, "b64")}, {blocks}u, "{i.text[:100]}");'


def _commit(i: Instruction, q: Qualifiers, w: Writer) -> str:
    blocks = _blocks(i, q)
    multicast = bool(q.take("multicast::cluster"))
    if not q.take("mbarrier::arrive::one") or not q.take("shared::cluster") or not q.take("b64"):
        raise NotExecutedError(i.opcode)
    q.end()
    mbarrier, *mask = operands(i, 1 + multicast)
    given = w.read(mask[0], "u16") if mask else "0u"
    return f"commit_umma(t, {w.address(mbarrier)}, {blocks}, {str(multicast).lower()}, {given});"


def _move(i: Instruction, q: Qualifiers, w: Writer, watched: Watched, loads: bool) -> Meeting:
    shape, repeated = q.take(*SHAPES), q.take(*(f"x{2**n}" for n in range(8)))
    if not shape or not repeated or not q.take("b32"):
        raise NotExecutedError(i.opcode)
    q.end()
    (lanes, columns, each), times = SHAPES[shape], int(repeated[1:])
    if each * times > 128:
        raise PtxError(f"{i.opcode}: no such shape")
    first, second = operands(i, 2)
    place, values = (second, first) if loads else (first, second)
    used = [part for part in w.parts(values, each * times) if isinstance(part, Register) and part.bits == 32]
    if len(used) < each * times or (loads and len(set(used)) < len(used)):
        raise PtxError(f"{i.opcode}: registers")
    if isinstance(place, Immediate):
        raise PtxError(f"{i.opcode}: {place}")
    return Meeting(
        "WARP",
        "LOAD_TENSOR" if loads else "STORE_TENSOR",
        True,
        f"t.in[0] = {_taddr(w, place)};",
        product=f"F32, F32, F32, {columns * times}, {lanes}, 0, 0, 0, 0, 0, {len(used)}, {columns}",
        offsets=tuple(f"offsetof(Registers_{w.entry.name}, {w.register(part)[2:]})" for part in used),
        sets=(watched.sets(used) if loads else [], []),
    )
