"""PTX text as objects: entries, their variables, and instructions with typed operands (PTX ISA, chapters 4 to 7)."""

import math
import re
from dataclasses import dataclass, field

#: bits of a register by the type in its declaration; predicates have 1
BITS = {"pred": 1} | {f"{kind}{bits}": bits for kind in "bsuf" for bits in (8, 16, 32, 64) if f"{kind}{bits}" != "f8"}


class PtxError(Exception):
    """PTX of a form that this tool does not know; the text shows it."""


class NotExecutedError(PtxError):
    """An instruction that this tool does not execute; the text is its opcode with all qualifiers."""


@dataclass(frozen=True)
class Register:
    """A virtual register; `name` is unique in its entry and a C++ identifier."""

    name: str
    bits: int


@dataclass(frozen=True)
class Immediate:
    """A constant: an integer, or the bits of a float that has `bits` bits."""

    value: int
    bits: int = 0


@dataclass(frozen=True)
class Symbol:
    """A variable, a parameter or a label."""

    name: str


@dataclass(frozen=True)
class Special:
    """A special register, such as %tid.x."""

    name: str


@dataclass(frozen=True)
class Vector:
    """Operands in braces, where None stands for an underscore, which takes no value."""

    parts: "tuple[Operand | None, ...]"


@dataclass(frozen=True)
class Address:
    """Brackets: a register or a symbol, plus bytes."""

    base: "Register | Symbol | Immediate"
    offset: int = 0


@dataclass(frozen=True)
class Box:
    """[map, {coordinates}]: where a tensor copy begins."""

    map: Address
    coordinates: Vector


@dataclass(frozen=True)
class Pair:
    """d|p: two destinations."""

    first: "Operand | None"
    second: "Operand | None"


Operand = Register | Immediate | Symbol | Special | Vector | Address | Box | Pair


@dataclass(frozen=True)
class Instruction:
    """One instruction: its text, the guard (register, negated), the opcode with its qualifiers, the operands, and the
    line of the source where the PTX has lines."""

    text: str
    guard: tuple[Register, bool] | None
    opcode: str
    operands: tuple[Operand, ...]
    line: int = 0


@dataclass(frozen=True)
class Variable:
    """A .local or .shared variable: bytes (0 where the launch gives them) and alignment."""

    name: str
    bytes: int
    alignment: int


@dataclass
class Entry:
    """A kernel: bytes of its parameters, registers, variables, and its body of labels and instructions."""

    name: str
    parameters: dict[str, int]  # their offsets
    params_bytes: int
    params_alignment: int = 1
    most_threads: int = 0
    threads: int = 0  # if they are given
    least_blocks: int = 1
    most_registers: int = 0
    cluster: int = 1
    registers: dict[str, Register] = field(default_factory=dict)
    local: list[Variable] = field(default_factory=list)
    shared: list[Variable] = field(default_factory=list)
    body: list[Instruction | str] = field(default_factory=list)

    @property
    def launch_registers(self) -> int:
        """Registers of a thread at launch by the performance directives (ISA, 11.4); 0 where none says."""
        shared = self.most_threads * self.least_blocks
        return self.most_registers or (min(65536 // shared // 8 * 8, 256) if shared else 0)


@dataclass(frozen=True)
class Module:
    """A PTX file: its version, the target, such as sm_87, the entries, the shared memory that launches give, and
    (offset, bytes) of .const variables."""

    version: tuple[int, int]
    target: str
    entries: list[Entry]
    dynamic: str | None
    constants: dict[str, tuple[int, int]] = field(default_factory=dict)


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\(([^)]*)\)([^{]*)\{")
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(?P<alignment>\d+)\s+)?\.(?P<kind>\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)?(?:\.align\s+\d+\s+)?)?"
    r"(?P<name>\w+)(?:\[(?P<count>\d+)\])?\s*\Z"
)
_CONSTANT = re.compile(
    r"\.const\s+(?:\.align\s+(?P<alignment>\d+)\s+)?\.(?P<kind>\w+)\s+(?P<name>[$\w]+)(?:\[(?P<count>\d+)\])?"
)
_LINE = re.compile(r"\.loc\s+\d+\s+(\d+)[^\n;]*\n?")
_FILES = re.compile(r"\.(?:file|section)\b[^\n{]*(?:\{[^}]*\})?")
#: performance directives and what they set
_DIRECTIVES = {
    "maxntid": "most_threads",
    "reqntid": "threads",
    "minnctapersm": "least_blocks",
    "maxnreg": "most_registers",
    "reqnctapercluster": "cluster",
}
_LABEL = re.compile(r"([$%\w]+):(?!:)")
_VARIABLE = re.compile(r"\.(?:local|shared)\s+\.align\s+(\d+)\s+\.b8\s+([$\w]+)\[(\d*)\]")
_NAMES = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.DOTALL)


def parse(text: str) -> Module:
    """Return the module of a PTX text; PtxError where it has a form that this tool does not know."""
    text = _COMMENT.sub("", text)
    version, target = re.search(r"\.version\s+(\d+)\.(\d+)", text), re.search(r"\.target\s+(\w+)", text)
    if version is None or target is None:
        raise PtxError("no .version or no .target")
    dynamic = re.search(r"\.extern\s+\.shared\s+\.align\s+\d+\s+\.b8\s+(\w+)\[\]", text)
    entries = []
    for found in _ENTRY.finditer(text):
        offsets, size, alignment = _placed(_PARAMETER, found[1], split(found[2]))
        entry = Entry(found[1], offsets, size, alignment)
        for directive, name in _DIRECTIVES.items():
            if value := re.search(rf"\.{directive}\s+(\d+(?:\s*,\s*\d+)*)", found[3]):
                setattr(entry, name, math.prod(int(each) for each in value[1].split(",")))
        _Body(entry, text, found.end()).read()
        entries.append(entry)
    if len(entries) != len(re.findall(r"\.entry\b", text)):
        raise PtxError("an entry of another form")
    if re.search(r"\.func\b", text):
        raise PtxError(".func")
    module = Module((int(version[1]), int(version[2])), target[1], entries, dynamic[1] if dynamic else None)
    end = 0
    for found in _CONSTANT.finditer(text):
        size = _bytes(found)
        end = -(-end // (alignment := int(found["alignment"] or size))) * alignment
        module.constants[found["name"]] = end, size
        end += size
    return module


def _bytes(found: re.Match[str]) -> int:
    if found["kind"] not in BITS:
        raise PtxError(found[0])
    return BITS[found["kind"]] // 8 * int(found["count"] or 1)


def _placed(pattern: re.Pattern[str], entry: str, texts: list[str]) -> tuple[dict[str, int], int, int]:
    """Return the offsets of an entry's parameters, their bytes, and the largest alignment."""
    offsets, end, most = {}, 0, 1
    for text in texts:
        found = pattern.match(text)
        if found is None:
            raise PtxError(f"parameter {text!r} of {entry}")
        alignment = int(found["alignment"] or BITS.get(found["kind"], 8) // 8)
        offsets[found["name"]] = end = -(-end // alignment) * alignment
        end, most = end + _bytes(found), max(most, alignment)
    return offsets, end, most


class _Body:
    """Reads one body into its entry; braces open scopes of names."""

    def __init__(self, entry: Entry, text: str, position: int):
        self.entry, self.text, self.position = entry, text, position
        self.scopes: list[dict[str, Register]] = [{}]
        self.line = 0

    def read(self) -> None:
        while self.scopes:
            self._skip_space()
            start = self.text[self.position]
            if start == "{":
                self.scopes.append({})
                self.position += 1
            elif start == "}":
                self.scopes.pop()
                self.position += 1
            elif place := _LINE.match(self.text, self.position):
                self.line, self.position = int(place[1]), place.end()
            elif label := _LABEL.match(self.text, self.position):
                self.entry.body.append(label[1])
                self.position = label.end()
            else:
                end = self.text.index(";", self.position)
                self._statement(" ".join(self.text[self.position : end].split()))
                self.position = end + 1

    def _skip_space(self) -> None:
        while self.text[self.position].isspace():
            self.position += 1

    def _statement(self, text: str) -> None:
        if text.startswith(".reg"):
            self._registers(text)
        elif text.startswith((".local", ".shared")):
            found = _VARIABLE.fullmatch(text)
            if not found:
                raise PtxError(text)
            variable = Variable(found[2], int(found[3] or 0), int(found[1]))
            (self.entry.local if text.startswith(".local") else self.entry.shared).append(variable)
        elif text and not text.startswith(".pragma"):
            if text.startswith("."):
                raise PtxError(text)
            self.entry.body.append(self._instruction(text))

    def _registers(self, text: str) -> None:
        found = _NAMES.fullmatch(text)
        if found is None or found[1] not in BITS:
            raise PtxError(text)
        for name in found[2].split(","):
            stem, _, count = name.strip().partition("<")
            for each in [f"{stem}{i}" for i in range(int(count[:-1]))] if count else [stem]:
                register = Register(f"{each.lstrip('%')}_{len(self.entry.registers)}", BITS[found[1]])
                self.scopes[-1][each] = self.entry.registers[register.name] = register

    def _instruction(self, text: str) -> Instruction:
        rest, guard = text, None
        if text.startswith("@"):
            predicate, rest = text[1:].split(None, 1)
            register = self._operand(predicate.lstrip("!"))
            if not isinstance(register, Register) or register.bits != 1:
                raise PtxError(text)
            guard = (register, predicate.startswith("!"))
        opcode, _, operands = rest.partition(" ")
        try:
            return Instruction(text, guard, opcode, tuple(map(self._operand, split(operands))), self.line)
        except PtxError as error:
            raise NotExecutedError(opcode) from error

    def _operand(self, text: str) -> Operand:
        for scope in reversed(self.scopes):
            if text in scope:
                return scope[text]
        if text.startswith("{"):
            parts = (None if each == "_" else self._operand(each) for each in split(text[1:-1]))
            return Vector(tuple(parts))
        if text.startswith("["):
            return self._bracketed(split(text[1:-1].replace(" ", "")))
        if "|" in text:
            first, second = (None if each.strip() == "_" else self._operand(each.strip()) for each in text.split("|"))
            return Pair(first, second)
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
            return Immediate(int(text[2:], 16), 32)
        if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
            return Immediate(int(text[2:], 16), 64)
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
            return Immediate(int(text.rstrip("U"), 0))
        if text.startswith("%"):
            return Special(text)
        if re.fullmatch(r"!?[$\w]+", text):
            return Symbol(text)
        raise PtxError(f"operand {text!r}")

    def _bracketed(self, parts: list[str]) -> Address | Box:
        base = self._address(parts[0])
        if len(parts) == 1:
            return base
        coordinates = self._operand(parts[1])
        if len(parts) > 2 or not isinstance(coordinates, Vector):
            raise PtxError(f"address {parts}")
        return Box(base, coordinates)

    def _address(self, text: str) -> Address:
        base, sign, offset = text.partition("+")
        if not sign and "-" in text[1:]:
            base, _, offset = text.rpartition("-")
            offset = f"-{offset}"
        found = self._operand(base)
        if not isinstance(found, Register | Symbol | Immediate):
            raise PtxError(f"address [{text}]")
        return Address(found, int(offset or "0", 0))


def split(text: str) -> list[str]:
    """Return the operands of a list, apart at commas outside of brackets and braces."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "[{(") - (character in "]})")
        if character == "," and not depth:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [*parts, current.strip()] if current.strip() else parts
