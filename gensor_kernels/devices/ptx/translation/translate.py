"""A PTX module as C++: one function per entry that runs a thread until it has to wait (machine/machine.h)."""

import re

from .accesses import asynchronous, atomic, load, store
from .asynchronous import WAITS, emitter, has_traffic, waiting
from .parse import Entry, Instruction, Module, NotExecutedError, PtxError, Symbol
from .scalars import SCALARS
from .scaled import scaled
from .tensor_memory import tensor_memory
from .warpgroups import Watched, warpgroup
from .warps import MEETINGS, Meeting
from .writer import Qualifiers, Writer, operands

#: membar is fence.sc of the scope's other name; fence alone is fence.acq_rel
FENCE = re.compile(r"(?P<kind>membar|fence(\.sc|\.acq_rel)?)\.(?P<scope>cta|cluster|gl|gpu|sys)\Z")
PREFETCH = re.compile(r"prefetch(\.global)?\.L[12]\Z")


def translate(module: Module) -> str:
    """Return the C++ of a module; NotExecutedError names an instruction that has no translation."""
    bodies = [_Function(module, entry) for entry in module.entries]
    entries = ",\n".join(each.entry_line for each in bodies)
    return (
        '#include "machine.h"\n\n'
        + "\n".join(each.text for each in bodies)
        + f'\nextern "C" const Entry entries[] = {{\n{entries},\n    {{}}}};\n'
    )


class _Function:
    """The translation of one entry."""

    def __init__(self, module: Module, entry: Entry):
        self.entry, self.writer, self.watched = entry, Writer(module, entry), Watched(entry)
        self.sites: list[tuple[Meeting, Instruction]] = []
        self.resumed = 0
        self.labels = {each: n for n, each in enumerate(entry.body) if isinstance(each, str)}
        lines = [self._line(n, each) for n, each in enumerate(entry.body)]
        self.text = self._assemble(lines)

    @property
    def entry_line(self) -> str:
        e, w = self.entry, self.writer
        return (
            f'    {{"{e.name}", step_{e.name}, sizeof(Registers_{e.name}), {w.local_bytes}, {w.static_shared}, '
            f"{len(self.sites)}, {e.params_bytes}, {self.watched.count}, {int(has_traffic(e.body))}, "
            f"{e.cluster}, {e.launch_registers}, {len(w.accesses)}, sites_{e.name}, accesses_{e.name}}}"
        )

    def _assemble(self, lines: list[str]) -> str:
        name = self.entry.name
        fields = "".join(
            f"    {'bool' if each.bits == 1 else f'u{each.bits}'} {each.name};\n"
            for each in sorted(self.writer.used.values(), key=lambda each: -each.bits)
        )
        keys: dict[str, int] = {}
        products = "".join(self._product(n, meeting) for n, (meeting, _) in enumerate(self.sites) if meeting.product)
        sites = "".join(self._site(n, meeting, i, keys) for n, (meeting, i) in enumerate(self.sites))
        cases = "".join(f"    case {n}: goto resume_{n};\n" for n in range(1, self.resumed + 1))
        body = "\n".join(lines)
        return (
            f"struct Registers_{name} {{\n{fields}}};\n{products}"
            f"static const Access accesses_{name}[] = {{\n{''.join(self.writer.accesses)}    {{}}}};\n"
            f"static const Site sites_{name}[] = {{\n{sites}    {{}}}};\n"
            f"static void step_{name}(Thread& t) {{\n"
            f"    Registers_{name}& r = *(Registers_{name}*)t.registers;\n"
            f"    switch (t.pc) {{\n    case 0: break;\n{cases}    }}\n{body}\n    t.stop = DONE;\n}}\n"
        )

    def _product(self, n: int, meeting: Meeting) -> str:
        offsets, sets, product = (f"{word}_{self.entry.name}_{n}" for word in ("offsets", "sets", "product"))
        sums, factors = meeting.sets
        return (
            f"static const u32 {offsets}[] = {{{', '.join(meeting.offsets)}}};\n"
            f"static const u32 {sets}[] = {{{', '.join(map(str, sums + factors))}}};\n"
            f"static const Product {product} = {{{meeting.product}, {offsets}, {len(sums + factors)}, {len(sums)}, "
            f"{sets}}};\n"
        )

    def _site(self, n: int, meeting: Meeting, i: Instruction, keys: dict[str, int]) -> str:
        key = keys.setdefault(i.opcode, len(keys))
        detail = ", ".join(f"(u8){each}" for each in meeting.detail)
        aligned = str(meeting.aligned).lower()
        product = f"&product_{self.entry.name}_{n}" if meeting.product else "nullptr"
        access = f"&{meeting.access}" if meeting.access else "nullptr"
        text = f"{i.text[:100]} (line {i.line})" if i.line else i.text[:100]
        where = f'{{Collective::{meeting.what}, {aligned}, {key}, "{text}", {{{detail}}}, {product}, {access}}}'
        return f"    {where},\n"

    def _line(self, place: int, each: Instruction | str) -> str:
        if isinstance(each, str):
            return f"{_label(each)}:;"
        try:
            line = f"t.line = {each.line}; " if each.line else ""
            return f"    {line}{self._guarded(place, each)} // {each.text}"
        except NotExecutedError:
            raise
        except (PtxError, ValueError, IndexError, KeyError) as error:
            raise PtxError(f"{each.text}: {error}") from error

    def _guarded(self, place: int, i: Instruction) -> str:
        name = i.opcode.partition(".")[0]
        guard = ""
        if i.guard:
            register, negated = i.guard
            guard = f"{'!' if negated else ''}{self.writer.read(register, 'pred')}"
        accessed = self.watched.accessed(i)
        if i.opcode.startswith(WAITS):
            before, condition, after = waiting(i, self.writer)
            return self._paused(accessed + before, condition, after, guard)
        if name == "wgmma":
            return self._meeting(warpgroup(i, self.writer, self.watched), i, guard, accessed)
        emit = emitter(i.opcode) or scaled(i.opcode) or MEETINGS.get(name)
        if emit or name == "tcgen05":
            found = emit(i, self.writer) if emit else tensor_memory(i, self.writer, self.watched)
            if isinstance(found, Meeting):
                return self._meeting(found, i, guard, accessed)
            return _braces(guard, accessed + found)
        if name == "ld":
            text, waits = load(i, self.writer)
            text = accessed + text
            return self._paused("t.stop = YIELDED;", "", text, guard) if waits else _braces(guard, text)
        return _braces(guard, accessed + self._statement(place, i, name))

    def _statement(self, place: int, i: Instruction, name: str) -> str:
        w = self.writer
        if name in SCALARS:
            return SCALARS[name](i, w)
        if name == "st":
            return store(i, w)
        if name in ("atom", "red"):
            return atomic(i, w)
        if name == "cp":
            return asynchronous(i, w)
        if name == "bra":
            return self._branch(place, i)
        if i.opcode in ("ret", "exit"):
            return "t.stop = DONE; return;"
        if i.opcode == "trap":
            return 'fault("trap", "the kernel gave up");'
        if fence := FENCE.match(i.opcode):
            scope = {"gl": "gpu"}.get(fence["scope"], fence["scope"]).upper()
            return f"fenced(t, Scope::{scope}, {str(fence['kind'] in ('membar', 'fence.sc')).lower()});"
        if PREFETCH.match(i.opcode):
            return ";"
        raise NotExecutedError(i.opcode)

    def _branch(self, place: int, i: Instruction) -> str:
        q = Qualifiers(i.opcode)
        q.take("uni")
        q.end()
        (target,) = operands(i, 1)
        if not isinstance(target, Symbol) or target.name not in self.labels:
            raise PtxError(f"no label {target}")
        back = "jumped_back(t); " if self.labels[target.name] < place else ""
        return f"{back}goto {_label(target.name)};"

    def _meeting(self, meeting: Meeting, i: Instruction, guard: str, accessed: str) -> str:
        self.sites.append((meeting, i))
        self.resumed += 1
        n = self.resumed
        skip = f"if (!({guard})) goto past_{n}; " if guard else ""
        past = f" past_{n}:;" if guard else ""
        stop = f"t.site = {len(self.sites) - 1}; t.stop = {meeting.stop}; t.pc = {n}; return;"
        return f"{skip}{{ {accessed}{meeting.before} {stop} }} resume_{n}: {{ {meeting.after} }}{past}"

    def _paused(self, before: str, condition: str, after: str, guard: str) -> str:
        """Statements between which the thread stops, on a condition or always, and other threads run."""
        self.resumed += 1
        n = self.resumed
        skip = f"if (!({guard})) goto past_{n}; " if guard else ""
        past = f" past_{n}:;" if guard else ""
        return f"{skip}{{ {before} }} {condition} {{ t.pc = {n}; return; }} resume_{n}: {{ {after} }}{past}"


def _braces(guard: str, text: str) -> str:
    return f"if ({guard}) {{ {text} }}" if guard else f"{{ {text} }}"


def _label(name: str) -> str:
    return "at_" + re.sub(r"\W", "_", name)
