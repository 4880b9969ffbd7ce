"""Common parts of all translated instructions: qualifiers, and operands as C++ expressions of their type."""

from .parse import (
    BITS,
    Address,
    Entry,
    Immediate,
    Instruction,
    Module,
    NotExecutedError,
    Operand,
    PtxError,
    Register,
    Special,
    Symbol,
    Vector,
)

_LAUNCH = "t.block->launch"
#: special registers as expressions; clusters are one-dimensional
SPECIALS = {
    "%tid.x": f"t.index % {_LAUNCH}->block_x",
    "%tid.y": f"t.index / {_LAUNCH}->block_x % {_LAUNCH}->block_y",
    "%tid.z": f"t.index / {_LAUNCH}->block_x / {_LAUNCH}->block_y",
    "%ntid.x": f"{_LAUNCH}->block_x",
    "%ntid.y": f"{_LAUNCH}->block_y",
    "%ntid.z": f"{_LAUNCH}->living / {_LAUNCH}->block_x / {_LAUNCH}->block_y",
    "%ctaid.x": f"t.block->index % {_LAUNCH}->grid_x",
    "%ctaid.y": f"t.block->index / {_LAUNCH}->grid_x % {_LAUNCH}->grid_y",
    "%ctaid.z": f"t.block->index / {_LAUNCH}->grid_x / {_LAUNCH}->grid_y",
    "%nctaid.x": f"{_LAUNCH}->grid_x",
    "%nctaid.y": f"{_LAUNCH}->grid_y",
    "%nctaid.z": f"{_LAUNCH}->grid / {_LAUNCH}->grid_x / {_LAUNCH}->grid_y",
    "%laneid": "t.lane",
    "%clusterid.x": "t.block->index / t.block->launch->cluster",
    "%nclusterid.x": "t.block->launch->grid / t.block->launch->cluster",
    "%cluster_ctaid.x": "t.block->rank",
    "%cluster_ctarank": "t.block->rank",
    "%cluster_nctaid.x": "t.block->launch->cluster",
    "%cluster_nctarank": "t.block->launch->cluster",
} | {
    f"%{name}.{axis}": "1u" if name.startswith("n") else "0u"
    for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
    for axis in "yz"
}


class Qualifiers:
    """The qualifiers of an opcode; each must be taken before `end`, so that all are considered."""

    def __init__(self, opcode: str):
        self.opcode = opcode
        self.name, *self.left = opcode.split(".")

    def take(self, *names: str) -> str:
        """Take one of these qualifiers if it is there; empty otherwise."""
        for name in names:
            if name in self.left:
                self.left.remove(name)
                return name
        return ""

    def type(self) -> str:
        """Take the last qualifier, a type."""
        if not self.left or self.left[-1] not in BITS:
            raise NotExecutedError(self.opcode)
        return self.left.pop()

    def rounding(self, *, whole: bool = False) -> str:
        """Take a rounding mode; the C++ constant, NEAREST where there is none."""
        modes = {"n": "NEAREST", "z": "ZERO", "m": "DOWN", "p": "UP", "na": "AWAY"}
        names = {f"r{mode}i" if whole else f"r{mode}": constant for mode, constant in modes.items()}
        return names.get(self.take(*names), "")

    def end(self) -> None:
        """Raise NotExecutedError if a qualifier is left."""
        if self.left:
            raise NotExecutedError(self.opcode)


class Writer:
    """Turns operands of one entry into C++ over `t`, the thread, and `r`, its registers."""

    def __init__(self, module: Module, entry: Entry):
        self.module, self.entry = module, entry
        self.used: dict[str, Register] = {}
        self.accesses: list[str] = []
        self.shared, self.static_shared = self._placed(entry.shared)
        if self.static_shared and module.dynamic:
            self.static_shared = -(-self.static_shared // 1024) * 1024
        self.local, self.local_bytes = self._placed(entry.local)

    @staticmethod
    def _placed(variables: list) -> tuple[dict[str, int], int]:
        offsets, end = {}, 0
        for each in variables:
            offsets[each.name] = end = -(-end // each.alignment) * each.alignment
            end += each.bytes
        return offsets, end

    def register(self, register: Register) -> str:
        """Return the field of a register."""
        self.used[register.name] = register
        return f"r.{register.name}"

    def read(self, operand: Operand | None, kind: str, *, wider: bool = False) -> str:
        """Return the value of an operand as `kind`; `wider`: of a register that may have more bits."""
        bits = BITS[kind]
        if isinstance(operand, Register):
            if operand.bits != bits and not (wider and operand.bits > bits > 1):
                raise PtxError(f"register {operand.name} of {operand.bits} bits as .{kind}")
            field = self.register(operand)
            if kind == "pred":
                return field
            return f"{kind}_of({field})" if kind in ("f32", "f64") else f"({unsigned_or(kind)}){field}"
        if isinstance(operand, Immediate):
            return self._constant(operand, kind)
        if isinstance(operand, Special) and operand.name in SPECIALS:
            return f"(u32)({SPECIALS[operand.name]})"
        if isinstance(operand, Symbol):
            return f"(u64){self.symbol(operand.name)}"
        raise PtxError(f"{operand} as .{kind}")

    def _constant(self, operand: Immediate, kind: str) -> str:
        if kind == "pred":
            return str(bool(operand.value)).lower()
        bits = BITS[kind]
        if (operand.bits and operand.bits != bits) or (kind[0] == "f" and not operand.bits):
            raise PtxError(f"constant {operand} as .{kind}")
        value = f"{operand.value % 2**bits:#x}" + ("ull" if bits == 64 else "u")
        return f"{kind}_of({value})" if kind in ("f32", "f64") else f"({unsigned_or(kind)}){value}"

    def write(self, operand: Operand | None, kind: str, value: str, *, wider: bool = False) -> str:
        """Return the statement that gives a register a value of type `kind`, extended where the register is wider."""
        if operand is None:
            return f"(void)({value});"
        if not isinstance(operand, Register):
            raise PtxError(f"{operand} as a destination")
        bits = BITS[kind]
        if operand.bits != bits and not (wider and operand.bits > bits > 1):
            raise PtxError(f"register {operand.name} of {operand.bits} bits as .{kind}")
        field = self.register(operand)
        if kind in ("f32", "f64"):
            return f"{field} = bits_of(({kind})({value}));"
        if kind == "pred":
            return f"{field} = ({value});"
        return f"{field} = (u{operand.bits})({unsigned_or(kind)})({value});"

    def symbol(self, name: str) -> str:
        """Return the address of a variable in its own space."""
        if name == self.module.dynamic:
            return f"(SHARED_BASE + {self.static_shared}u)"
        if name in self.shared:
            return f"(SHARED_BASE + {self.shared[name]}u)"
        if name in self.local:
            return f"{self.local[name]}u"
        if name in self.entry.parameters:
            return f"{self.entry.parameters[name]}u"
        if name in self.module.constants:
            return f"{self.module.constants[name][0]}u"
        raise PtxError(f"variable {name}")

    def address(self, operand: Operand) -> str:
        """Return the address in brackets, 64 bits."""
        if not isinstance(operand, Address):
            raise PtxError(f"{operand} as an address")
        if isinstance(operand.base, Register):
            base = f"(u64){self.register(operand.base)}"
            if operand.base.bits not in (32, 64):
                raise PtxError(f"address in {operand.base.name}")
        elif isinstance(operand.base, Symbol):
            base = f"(u64){self.symbol(operand.base.name)}"
        else:
            base = f"{operand.base.value}ull"
        return f"({base} + {operand.offset}ll)" if operand.offset else base

    def access(self, i: Instruction, space: str, count: int, each: int, how: str, scope: str = "cta") -> str:
        """Return the entry in the table of accesses of an instruction: how it reads and writes `count` bytes."""
        where = f"Space::{space.upper() or 'GENERIC'}, {count}, {each}, {how}, Scope::{scope.upper()}"
        text = f"{i.text} (line {i.line})" if i.line else i.text
        self.accesses.append(f'    {{"{text}", {where}}},\n')
        return f"accesses_{self.entry.name}[{len(self.accesses) - 1}]"

    def parts(self, operand: Operand, count: int) -> tuple[Operand | None, ...]:
        """Return the parts of a vector operand, which must be `count`; one part needs no braces."""
        parts = operand.parts if isinstance(operand, Vector) else (operand,)
        if len(parts) != count:
            raise PtxError(f"{len(parts)} operands in braces where {count} belong")
        return parts


def unsigned_or(kind: str) -> str:
    """Return the C++ type of a PTX type: bits are unsigned."""
    return kind if kind[0] in "suf" and kind not in ("f16",) else f"u{BITS[kind]}"


def operands(instruction: Instruction, *counts: int) -> tuple[Operand, ...]:
    """Return the operands, whose number must be one of `counts`."""
    if len(instruction.operands) not in counts:
        raise PtxError(f"{instruction.text}: {len(instruction.operands)} operands")
    return instruction.operands
