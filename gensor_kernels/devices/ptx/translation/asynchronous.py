"""The asynchronous machinery of sm_90 as C++ (PTX ISA, chapters 9.7.9.25 to 9.7.9.27, 9.7.13 and 9.7.19)."""

from collections.abc import Callable

from .parse import Box, Immediate, Instruction, NotExecutedError, Operand, PtxError, Symbol
from .warps import Meeting
from .writer import Qualifiers, Writer, operands

#: A fence of the generic proxy with the asynchronous one, on shared memory or on all.
PROXY_FENCES = ("fence.proxy.async", "fence.proxy.async.shared::cta", "fence.proxy.async.shared::cluster")


def bulk(i: Instruction, w: Writer) -> str:
    """Return the statements of cp.async.bulk: copies between tensors and shared memory, and their groups."""
    q = Qualifiers(i.opcode)
    _taken(i, q, "async", "bulk")
    if q.take("commit_group"):
        q.end()
        operands(i, 0)
        return "commit_bulk(t);"
    if q.take("wait_group"):
        read = bool(q.take("read"))
        q.end()
        (left,) = operands(i, 1)
        if not isinstance(left, Immediate):
            raise PtxError(f"{i.text}: not a constant")
        return f"await_bulk(t, {left.value}u, {_flag(read)});"
    _taken(i, q, "tensor")
    rank = int((q.take(*(f"{n}d" for n in range(1, 6))) or "0d")[0])
    pixels = q.take("tile", "im2col") == "im2col"
    if not rank:
        raise NotExecutedError(i.opcode)
    return (_from_global if q.left[0].startswith("shared") else _to_global)(i, w, q, rank, pixels)


def _from_global(i: Instruction, w: Writer, q: Qualifiers, rank: int, pixels: bool) -> str:
    if not q.take("shared::cluster", "shared::cta"):
        raise NotExecutedError(i.opcode)
    _taken(i, q, "global", "mbarrier::complete_tx::bytes")
    multicast = bool(q.take("multicast::cluster"))
    pair = q.take("cta_group::1", "cta_group::2") == "cta_group::2"
    if pair and w.module.target.rstrip("af") < "sm_100":
        raise PtxError(f"{i.opcode} on {w.module.target}")
    q.end()
    to, box, mbarrier, *rest = operands(i, 3 + pixels + multicast)
    text = f"Bulk bulk; bulk.shared = {w.address(to)}; bulk.mbarrier = {w.address(mbarrier)}; {_box(w, box, rank)} "
    text += "bulk.pair = true; " if pair else ""
    if pixels:
        moved = w.parts(rest.pop(0), rank - 2)
        text += "bulk.pixels = true; "
        text += " ".join(f"bulk.moved[{n}] = {w.read(each, 'u16')};" for n, each in enumerate(moved))
    if multicast:
        text += f"bulk.multicast = true; bulk.blocks = {w.read(rest[0], 'u16')}; "
    return f"{text} load_tensor(t, bulk);"


def _to_global(i: Instruction, w: Writer, q: Qualifiers, rank: int, pixels: bool) -> str:
    if pixels:
        raise NotExecutedError(i.opcode)
    _taken(i, q, "global", "shared::cta", "bulk_group")
    q.end()
    box, source = operands(i, 2)
    return f"Bulk bulk; bulk.shared = {w.address(source)}; {_box(w, box, rank)} store_tensor(t, bulk);"


def _box(w: Writer, operand: Operand, rank: int) -> str:
    if not isinstance(operand, Box):
        raise PtxError(f"{operand} as a place in a tensor")
    at = w.parts(operand.coordinates, rank)
    lines = [f"bulk.at[{n}] = {w.read(each, 's32')};" for n, each in enumerate(at)]
    return f"bulk.map = {w.address(operand.map)}; bulk.rank = {rank}; {' '.join(lines)}"


def _taken(i: Instruction, q: Qualifiers, *names: str) -> None:
    if not all(q.take(each) for each in names):
        raise NotExecutedError(i.opcode)


def _flag(value: bool) -> str:
    return str(value).lower()


def mbarrier(i: Instruction, w: Writer) -> str:
    """Return the statements of an mbarrier operation; of try_wait and test_wait see `waiting`."""
    q = Qualifiers(i.opcode)
    action = q.take("init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx")
    expects = action.startswith("arrive") and bool(q.take("expect_tx"))
    releases = _flag(q.take("release", "relaxed") != "relaxed")
    wide = _flag(q.take("cta", "cluster") == "cluster")
    space = q.take("shared::cta", "shared::cluster", "shared")
    if not action or not space or (q.take("b64") != "b64" and action != "expect_tx"):
        raise NotExecutedError(i.opcode)
    q.end()
    in_cluster = _flag(space == "shared::cluster")
    if action == "init":
        address, count = operands(i, 2)
        return f"mbarrier_init(t, {w.address(address)}, {w.read(count, 'u32')});"
    if action == "inval":
        (address,) = operands(i, 1)
        return f"mbarrier_invalidate(t, {w.address(address)});"
    if action in ("expect_tx", "complete_tx"):
        address, count = operands(i, 2)
        sign = "-" if action == "complete_tx" else ""
        return f"mbarrier_expect(t, {w.address(address)}, {sign}(s64){w.read(count, 'u32')}, {in_cluster});"
    state, address, *given = operands(i, 2, 3)
    value = w.read(given[0], "u32") if given else "1u"
    counts = f"1u, {value}" if expects else f"{value}, 0u"
    if expects and not given:
        raise PtxError(f"{i.text}: no bytes")
    counts += f", {_flag(action == 'arrive_drop')}, {in_cluster}, {releases}, {wide}"
    arrival = f"mbarrier_arrive(t, {w.address(address)}, {counts})"
    if isinstance(state, Symbol) and state.name == "_":
        return f"{arrival};"
    if space == "shared::cluster":
        raise PtxError(f"{i.text}: a state of another block")
    return w.write(state, "b64", arrival)


def waiting(i: Instruction, w: Writer) -> tuple[str, str, str]:
    """Return the statements of mbarrier.try_wait or test_wait: before, how the thread waits, and after."""
    q = Qualifiers(i.opcode)
    action = q.take("try_wait", "test_wait")
    parity = bool(q.take("parity"))
    acquires = _flag(q.take("acquire", "relaxed") != "relaxed")
    wide = _flag(q.take("cta", "cluster") == "cluster")
    if not q.take("shared::cta", "shared") or not q.take("b64"):
        raise NotExecutedError(i.opcode)
    q.end()
    over, address, phase = operands(i, 3)
    operand = f"{w.address(address)}, {w.read(phase, 'u32' if parity else 'b64')}, {_flag(parity)}, {acquires}, {wide}"
    if action == "test_wait":  # other threads run before it
        return "t.stop = YIELDED;", "", w.write(over, "pred", f"mbarrier_over(t, {operand})")
    return f"mbarrier_wait(t, {operand});", "if (t.stop == PHASE)", w.write(over, "pred", "t.flag")


def fence(i: Instruction, w: Writer) -> str:
    """Return the statements of a fence of the asynchronous proxy or of mbarriers."""
    operands(i, 0)
    if i.opcode in PROXY_FENCES:
        return "fence_proxy(t);"
    if i.opcode == "fence.mbarrier_init.release.cluster":
        return "fence_mbarriers(t);"
    raise NotExecutedError(i.opcode)


def prefetch(i: Instruction, w: Writer) -> str:
    """Return the check of prefetch.tensormap."""
    if i.opcode not in ("prefetch.tensormap", "prefetch.param.tensormap"):
        raise NotExecutedError(i.opcode)
    (address,) = operands(i, 1)
    window = "PARAM_WINDOW + " if "param" in i.opcode else ""
    return f"check_map(t, {window}{w.address(address)});"


def mapped(i: Instruction, w: Writer) -> str:
    """Return the statements of mapa: the address of the same place in another block of the cluster."""
    if i.opcode not in ("mapa.shared::cluster.u32", "mapa.shared::cluster.u64"):
        raise NotExecutedError(i.opcode)
    kind = i.opcode[-3:]
    d, address, rank = operands(i, 3)
    place = f"mapped_address(t, {w.read(address, kind)}, {w.read(rank, 'u32')})"
    return w.write(d, kind, place)


def dependency(i: Instruction, w: Writer) -> str:
    """Return the statements of griddepcontrol: launches run one after the other, so a wait is only noted."""
    operands(i, 0)
    forms = {"griddepcontrol.wait": "t.depended = true;", "griddepcontrol.launch_dependents": ";"}
    if i.opcode not in forms:
        raise NotExecutedError(i.opcode)
    return forms[i.opcode]


def cluster_barrier(i: Instruction, w: Writer) -> Meeting | str:
    """Return barrier.cluster.arrive or barrier.cluster.wait."""
    q = Qualifiers(i.opcode)
    _taken(i, q, "cluster")
    action = q.take("arrive", "wait")
    if not action or (action == "wait" and "release" in q.left) or (action == "arrive" and "acquire" in q.left):
        raise NotExecutedError(i.opcode)
    releases = _flag(q.take("release", "relaxed", "acquire") != "relaxed")
    aligned = bool(q.take("aligned"))
    q.end()
    operands(i, 0)
    if action == "wait":
        return Meeting("CLUSTER", "SYNC", aligned, "await_cluster(t);")
    text = f"arrive_at_cluster(t, {releases});"
    return Meeting("WARP", "CONVERGE", True, "", text) if aligned else text


def arrival(i: Instruction, w: Writer) -> Meeting | str:
    """Return bar.arrive or barrier.arrive."""
    q = Qualifiers(i.opcode)
    q.take("cta")
    _taken(i, q, "arrive")
    aligned = bool(q.take("aligned")) or q.name == "bar"
    q.end()
    number, count = operands(i, 2)
    text = f"arrive_at_barrier(t, {w.read(number, 'u32')}, {w.read(count, 'u32')});"
    return Meeting("WARP", "CONVERGE", True, "", text) if aligned else text


def registers(i: Instruction, w: Writer) -> Meeting:
    """Return setmaxnreg."""
    q = Qualifiers(i.opcode)
    action = q.take("inc", "dec")
    _taken(i, q, "sync", "aligned", "u32")
    q.end()
    (count,) = operands(i, 1)
    if not action or not isinstance(count, Immediate):
        raise PtxError(i.text)
    return Meeting("WARP", "REGISTERS", True, f"t.in[0] = {count.value}u;", "", (int(action == "inc"),))


Emit = Callable[[Instruction, Writer], "Meeting | str"]
#: how an opcode begins, and its translation
ASYNCHRONOUS: dict[str, Emit] = {
    "cp.async.bulk": bulk,
    "mbarrier": mbarrier,
    "fence.proxy": fence,
    "fence.mbarrier_init": fence,
    "prefetch.tensormap": prefetch,
    "prefetch.param": prefetch,
    "mapa": mapped,
    "griddepcontrol": dependency,
    "barrier.cluster": cluster_barrier,
    "bar.arrive": arrival,
    "barrier.arrive": arrival,
    "barrier.cta.arrive": arrival,
    "setmaxnreg": registers,
}
WAITS = ("mbarrier.try_wait", "mbarrier.test_wait")
#: what makes an entry keep account of its shared memory
TRAFFIC = ("cp.async.bulk.", "mbarrier.", "setmaxnreg.", "wgmma.", "tcgen05.")


def emitter(opcode: str) -> Emit | None:
    """Return the translation of an opcode, None if it is none of these."""
    return next((emit for name, emit in ASYNCHRONOUS.items() if opcode.startswith(name)), None)


def has_traffic(body: list[Instruction | str]) -> bool:
    """Return whether an entry copies asynchronously, or has mbarriers."""
    return any(isinstance(each, Instruction) and each.opcode.startswith(TRAFFIC) for each in body)
