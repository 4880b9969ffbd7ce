"""Instructions of machine code, from what nvdisasm prints, as machine/machine.cpp executes them."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gensor_kernels.build.instruction import Instruction as Printed
from gensor_kernels.errors import UnsupportedError

#: Operations of machine.cpp; those of control are together.
FLOW = ("EXIT", "BRA", "CALL", "RET", "BSSY", "BSYNC", "BREAK", "BAR")
OPERATIONS = (
    *("NOP", *FLOW, "IADD3", "IADD_64", "IMAD", "LEA", "LOP3", "PLOP3", "SHF", "ISETP", "FSETP", "FSET", "DSETP"),
    *("SEL", "FSEL", "IMNMX", "FMNMX", "MOV", "SPECIAL", "LOAD_CONSTANT", "TO_UNIFORM_REGISTER", "PRMT", "POPC"),
    *("FLO", "BREV", "IABS", "SGXT", "BMSK", "FADD", "FMUL", "FFMA", "DADD", "DMUL", "DFMA", "MUFU", "FCHK"),
    *("TO_FLOAT", "TO_INTEGER", "CONVERT", "PACK", "HADD2", "HMUL2", "HFMA2", "SHFL", "VOTE", "MATCH", "REDUX"),
    *("LOAD", "STORE", "ATOMIC", "COPY", "MOVE_BARRIER", "TO_PREDICATES", "FROM_PREDICATES", "DOT"),
)
RELATIONS = ("LESS", "EQUAL", "AT_MOST", "GREATER", "UNEQUAL", "AT_LEAST", "ALWAYS", "NUMBERS", "NO_NUMBERS", "NEVER")
_RELATIONS = dict(zip(("LT", "EQ", "LE", "GT", "NE", "GE", "T", "NUM", "NAN", "F"), RELATIONS, strict=True))
UPDATES = ("ADD", "MINIMUM", "MAXIMUM", "EXCHANGE", "COMPARE", "INCREMENT", "DECREMENT", "COUNT")
BIT_UPDATES = ("ALL_BITS", "ANY_BITS", "ODD_BITS")
_UPDATES = dict(
    zip(
        ("ADD", "MIN", "MAX", "EXCH", "CAS", "INC", "DEC", "AND", "OR", "XOR"),
        (*UPDATES[:7], *BIT_UPDATES),
        strict=True,
    )
)
APPROXIMATE = ("RCP", "RSQ", "EX2", "LG2", "SIN", "COS", "SQRT", "TANH")
ROUNDING = ("NEAREST", "TO_ZERO", "DOWN", "UP")
_ROUNDING = {"TRUNC": "TO_ZERO", "RZ": "TO_ZERO", "FLOOR": "DOWN", "RM": "DOWN", "CEIL": "UP", "RP": "UP"}
SHUFFLES = ("SHUFFLE_UP", "SHUFFLE_DOWN", "SHUFFLE_BUTTERFLY", "SHUFFLE_INDEX")
_SHUFFLES = dict(zip(("UP", "DOWN", "BFLY", "IDX"), SHUFFLES, strict=True))
SPECIAL = (
    *("NO_SPECIAL", "TID_X", "TID_Y", "TID_Z", "CTAID_X", "CTAID_Y", "CTAID_Z", "LANEID"),
    *("EQMASK", "LTMASK", "LEMASK", "GTMASK", "GEMASK", "CLOCK"),
)
_ENUMS = (OPERATIONS, RELATIONS, (*UPDATES, *BIT_UPDATES), APPROXIMATE, ROUNDING, SHUFFLES, SPECIAL)
_MODIFIERS = (
    *("IS_UNSIGNED", "CARRIES", "UPPER", "WIDE", "EXTENDED", "SIGN_EXTENDED", "WRAPS", "SIGNED_LOAD", "WITH_AND"),
    *("OF_64", "TO_UNIFORM", "BFLOAT", "DIVERGENT", "UPPER_RESULT", "UNORDERED", "RETURNS"),
)
_BIT = {name: 1 << place for place, name in enumerate(_MODIFIERS)}
NOTHING, REGISTER, UNIFORM, PREDICATE, UNIFORM_PREDICATE, IMMEDIATE, CONSTANT, BARRIER, ADDRESS = range(9)
NEGATED, ABSOLUTE, INVERTED, LOW, HIGH, PAIR, BASE_UNIFORM = (1 << place for place in range(7))
ZERO, TRUE = 255, 7


def enumerations() -> str:
    """Return the C++ text of the enumerations that machine.cpp shares with this file."""
    made = [f"enum {{ {', '.join(names)} }};\n" for names in _ENUMS]
    return "".join(made) + f"enum {{ FIRST_OF_FLOW = {FLOW[0]}, LAST_OF_FLOW = {FLOW[-1]} }};\n"


class Operand(ctypes.Structure):
    """An operand, as in machine.cpp."""

    _fields_ = [
        *((name, ctypes.c_uint8) for name in ("kind", "flags")),
        ("index", ctypes.c_uint16),
        ("value", ctypes.c_int32),
        *((name, ctypes.c_uint16) for name in ("base", "shift")),
    ]


class Coded(ctypes.Structure):
    """An instruction, as in machine.cpp."""

    _fields_ = [
        ("op", ctypes.c_uint16),
        *((name, ctypes.c_uint8) for name in ("guard", "guard_flags", "stall", "waits")),
        ("scoreboard", ctypes.c_int8),
        *((name, ctypes.c_uint8) for name in ("bytes", "sub", "joined", "space", "padding")),
        ("modifiers", ctypes.c_uint32),
        ("target", ctypes.c_int32),
        *((name, Operand) for name in "defabcpq"),
    ]


NO_OPERAND = Operand(kind=NOTHING, index=ZERO, base=ZERO)
ALWAYS = Operand(kind=PREDICATE, index=TRUE, base=ZERO)

_REGISTER = re.compile(r"(UR|UP|R|P|B)(\d+|Z|T)((?:\.\w+)*)\Z")
_CONSTANT = re.compile(r"c\[0x([0-9a-f]+)\]\[([^\]]*)\]\Z")
_ADDRESS = re.compile(r"(?:desc\[UR\d+\])?(?:desc\[URZ\])?\[([^\]]*)\]\Z")
_INTEGER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)\Z")
_KINDS = {"R": REGISTER, "UR": UNIFORM, "P": PREDICATE, "UP": UNIFORM_PREDICATE, "B": BARRIER}


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")] if text.strip() else []


def _register(text: str) -> Operand | None:
    found = _REGISTER.match(text)
    if found is None:
        return None
    kind, number, rest = found.groups()
    index = (TRUE if number == "T" else ZERO) if number in "ZT" else int(number)
    flags = (LOW if ".H0" in rest else 0) | (HIGH if ".H1" in rest else 0) | (PAIR if ".64" in rest else 0)
    return Operand(kind=_KINDS[kind], index=index, flags=flags, base=ZERO)


def _offset(text: str) -> tuple[str, str, int, int]:
    """Return the register, the uniform register, the offset and the register's shift of a bracket."""
    register, uniform, offset, shift = "", "", 0, 0
    for part in text.replace("+-", "+~").split("+"):
        term = part.replace("~", "-").strip()
        if _INTEGER.match(term):
            offset += int(term, 0)
        elif term.startswith("UR"):
            uniform = term
        elif term:
            register = term
            if scaled := re.search(r"\.X(\d+)", term):
                shift = int(scaled[1]).bit_length() - 1
    return register, uniform, offset, shift


def _address(text: str, wide: bool) -> Operand:
    register, uniform, offset, shift = _offset(text)
    own = _register(register.split(".")[0]) if register else None
    base = _register(uniform.split(".")[0]) if uniform else None
    pair = wide and own is not None and ".U32" not in register and own.index != ZERO
    flags = (PAIR if pair else 0) | (BASE_UNIFORM if wide else 0)
    return Operand(
        kind=ADDRESS,
        flags=flags,
        index=ZERO if own is None else own.index,
        base=ZERO if base is None else base.index,
        value=offset,
        shift=shift,
    )


def _as_float(text: str) -> float:
    text = text.replace("QNAN", "nan").replace("SNAN", "nan").replace("INF", "inf")
    return float(text)


def operand(text: str, numbers: str = "") -> Operand:
    """Return an operand; `numbers`: f, d or h where immediates are floats, doubles or halves, else integers."""
    flags = 0
    text = text.replace(".reuse", "")
    if _INTEGER.match(text) and not (numbers and "0x" not in text):
        value = int(text, 0) & 0xFFFFFFFF
        return Operand(kind=IMMEDIATE, value=value - (1 << 32 if value >> 31 else 0), index=ZERO, base=ZERO)
    if numbers and re.fullmatch(r"[-+]?(\d.*|QNAN|SNAN|INF)", text):
        packed = {"f": "<f", "d": "<d", "h": "<e"}[numbers]
        made = struct.pack(packed, _as_float(text))
        value = int.from_bytes(made[4:] if numbers == "d" else made, "little")
        return Operand(kind=IMMEDIATE, value=value - (1 << 32 if value >> 31 else 0), index=ZERO, base=ZERO)
    while text[:1] in "-!~|+":
        flags |= {"-": NEGATED, "!": INVERTED, "~": INVERTED, "|": ABSOLUTE, "+": 0}[text[0]]
        text = text[1:]
    text = text.replace("|", "")
    if register := _register(text):
        register.flags |= flags
        return register
    if found := _CONSTANT.match(re.sub(r"(\])\.\w+(?:_H\d)?\Z", r"\1", text)):
        own, uniform, offset, _ = _offset(found[2])
        index = _register((uniform or own).split(".")[0]) if uniform or own else None
        more = ZERO if index is None or index.index == ZERO else index.index
        return Operand(
            kind=CONSTANT,
            index=int(found[1], 16),
            value=offset,
            base=more,
            flags=flags | (BASE_UNIFORM if uniform else 0),
        )
    raise UnsupportedError(f"the operand {text}")


def _modifiers(*names: str) -> int:
    return sum(_BIT[name] for name in names if name)


@dataclass
class _Reader:
    """One printed instruction: its name without U, its suffixes, and its operands' texts."""

    printed: Printed
    name: str
    suffixes: tuple[str, ...]
    texts: list[str]

    def has(self, *names: str) -> bool:
        return any(name in self.suffixes for name in names)

    def predicates(self) -> list[Operand]:
        """Take predicates off the end of the operands."""
        taken: list[Operand] = []
        while self.texts and re.fullmatch(r"!?U?P(\d|T)", self.texts[-1]):
            taken.insert(0, operand(self.texts.pop()))
        return taken

    def outputs(self) -> list[Operand]:
        """Take predicates that follow the result."""
        taken = []
        while len(self.texts) > 1 and re.fullmatch(r"U?P(\d|T)", self.texts[1]):
            taken.append(operand(self.texts.pop(1)))
        return taken

    def all(self, numbers: str = "") -> list[Operand]:
        return [operand(text, numbers) for text in self.texts]


def _filled(coded: Coded, **operands: Operand | None) -> None:
    for name, given in operands.items():
        if given is not None:
            setattr(coded, name, given)


def _sources(coded: Coded, operands: Sequence[Operand], names: str = "dabc") -> None:
    _filled(coded, **dict(zip(names, operands, strict=False)))


def _sum(r: _Reader, c: Coded) -> None:
    given, carries = r.predicates(), r.outputs()
    if r.has("64") or r.name == "IADD":
        c.op = OPERATIONS.index("IADD_64")
    _sources(c, r.all())
    if r.name == "VIADD" or c.c.kind == NOTHING:
        c.c = Operand(kind=REGISTER, index=ZERO, base=ZERO)
    _filled(c, **dict(zip("ef", carries, strict=False)))
    if r.has("X"):
        c.modifiers |= _BIT["CARRIES"]
        never = Operand(kind=PREDICATE, index=TRUE, flags=INVERTED, base=ZERO)
        c.p, c.q = [*given, never, never][:2]


def _product(r: _Reader, c: Coded) -> None:
    given, carries = r.predicates(), r.outputs()
    _sources(c, r.all())
    _filled(c, e=carries[0] if carries else None)
    names = [("U32", "IS_UNSIGNED"), ("WIDE", "WIDE"), ("HI", "UPPER"), ("X", "CARRIES")]
    c.modifiers |= _modifiers(*(bit for suffix, bit in names if r.has(suffix)))
    if given:
        c.p = given[0]


def _shifted_sum(r: _Reader, c: Coded) -> None:
    given, carries = r.predicates(), r.outputs()
    texts = r.all()
    c.q = texts.pop()  # the shift
    _sources(c, texts)
    _filled(c, e=carries[0] if carries else None)
    names = [("HI", "UPPER"), ("X", "CARRIES"), ("SX32", "SIGN_EXTENDED")]
    c.modifiers |= _modifiers(*(bit for suffix, bit in names if r.has(suffix)))
    if given:
        c.p = given[0]


def _logic(r: _Reader, c: Coded) -> None:
    given = r.predicates()
    if re.fullmatch(r"U?P(\d|T)", r.texts[0]):
        c.e = operand(r.texts.pop(0))
    *operands, table = r.all()
    _sources(c, operands)
    c.sub = table.value & 0xFF
    c.p = given[0] if given else Operand(kind=PREDICATE, index=TRUE, flags=INVERTED, base=ZERO)
    c.modifiers |= _modifiers("WITH_AND" if r.has("PAND") else "")


def _predicate_logic(r: _Reader, c: Coded) -> None:
    second, first = operand(r.texts.pop()), operand(r.texts.pop())
    c.sub, c.joined = first.value & 0xFF, second.value & 0xFF
    _sources(c, r.all(), "deabc")


def _shift(r: _Reader, c: Coded) -> None:
    _sources(c, r.all())
    types = ("U32", "U64", "S32", "S64")
    kind = next((each for each in types if r.has(each)), "U32")
    c.modifiers |= _modifiers(
        "IS_UNSIGNED" if kind[0] == "U" else "",
        "OF_64" if kind.endswith("64") else "",
        "UPPER" if r.has("HI") else "",
        "WRAPS" if r.has("W") else "",
        "RETURNS" if r.has("R") else "",
    )


def _comparison(numbers: str) -> Callable[[_Reader, Coded], None]:
    def read(r: _Reader, c: Coded) -> None:
        given = r.predicates()
        _sources(c, r.all(numbers), "deab" if r.name != "FSET" else "dab")
        relation = next(each for each in r.suffixes if each in _RELATIONS or each[:-1] in _RELATIONS)
        unordered = relation not in _RELATIONS
        c.sub = RELATIONS.index(_RELATIONS[relation[:-1] if unordered else relation])
        c.joined = 1 if r.has("OR") else 2 if r.has("XOR") else 0
        c.p = given[0] if given else ALWAYS
        c.q = given[1] if len(given) > 1 else NO_OPERAND
        c.modifiers |= _modifiers(
            "IS_UNSIGNED" if r.has("U32", "U64") else "",
            "EXTENDED" if r.has("EX") else "",
            "OF_64" if r.has("64", "U64", "S64") else "",
            "UNORDERED" if unordered else "",
            "UPPER_RESULT" if r.has("BF") else "",
        )

    return read


def _choice(numbers: str) -> Callable[[_Reader, Coded], None]:
    def read(r: _Reader, c: Coded) -> None:
        given = r.predicates()
        r.outputs()
        _sources(c, r.all(numbers))
        c.p = given[0] if given else ALWAYS
        sum_first = r.name == "VIADDMNMX"
        c.modifiers |= _modifiers(
            "IS_UNSIGNED" if r.has("U32") else "",
            "EXTENDED" if sum_first else "",
            "OF_64" if r.has("64") else "",
        )

    return read


def _plain(numbers: str = "", *names: tuple[str, str]) -> Callable[[_Reader, Coded], None]:
    def read(r: _Reader, c: Coded) -> None:
        r.outputs()
        _sources(c, r.all(numbers))
        c.modifiers |= _modifiers(*(bit for suffix, bit in names if r.has(suffix)))

    return read


def _addition(r: _Reader, c: Coded) -> None:  # of floats: FADD has two sources, of which the second may be the third
    r.predicates()
    _sources(c, r.all("d" if r.name[0] == "D" else "f"))
    c.modifiers |= _modifiers("WRAPS" if r.has("SAT") else "")


def _special(r: _Reader, c: Coded) -> None:
    c.d = operand(r.texts[0])
    name = r.texts[1].removeprefix("SR_").replace(".", "_").upper()
    name = {"CLOCKLO": "CLOCK", "CLOCKHI": "NO_SPECIAL", "CGACTAID": "NO_SPECIAL"}.get(name, name)
    if name not in SPECIAL and not name.startswith(("SRZ", "Z", "SMEMSZ", "CGA", "NCTAID", "VIRTUAL", "GLOBALTIMER")):
        raise UnsupportedError(f"the special register {r.texts[1]}")
    c.a = Operand(kind=IMMEDIATE, index=SPECIAL.index(name) if name in SPECIAL else 0, base=ZERO)
    c.modifiers |= _modifiers("OF_64" if r.name == "CS2R" and not r.has("32") else "")


def _constant(r: _Reader, c: Coded) -> None:
    _sources(c, r.all())
    c.bytes = _bytes(r)
    c.modifiers |= _modifiers("SIGNED_LOAD" if r.has("S8", "S16") else "")


def _bytes(r: _Reader) -> int:
    widths = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "F16": 2}
    return next((widths[each] for each in r.suffixes if each in widths), 4)


_SPACES = {"G": 0, "S": 1, "L": 2}


def _memory(r: _Reader, c: Coded) -> None:
    letter = r.name[-1] if r.name[-1] in "GSL" and len(r.name) > 2 else "G"
    c.space = _SPACES[letter]
    c.bytes = _bytes(r)
    r.predicates()
    places = [at for at, text in enumerate(r.texts) if text.endswith("]") and not text.startswith("c[")]
    found = _ADDRESS.match(r.texts[places[0]])
    if found is None:
        raise UnsupportedError(f"the address {r.texts[places[0]]}")
    wide = c.space == 0 and (".64" in found[1] or r.has("E"))
    c.modifiers |= _modifiers("SIGNED_LOAD" if r.has("S8", "S16") else "")
    c.a = _address(found[1], wide)
    if r.name.startswith("LD"):
        c.op, c.d = OPERATIONS.index("LOAD"), operand(r.texts[0])
    else:
        c.op, c.b = OPERATIONS.index("STORE"), operand(r.texts[places[0] + 1])


def _atomic(r: _Reader, c: Coded) -> None:
    c.op = OPERATIONS.index("ATOMIC")
    c.space = 1 if r.name == "ATOMS" else 0
    action = next((each for each in r.suffixes if each in _UPDATES), "")
    popc = r.has("POPC")
    if not action and not popc and r.name == "ATOMS":
        action = "CAS" if r.has("CAST") else ""
    if not action and not popc:
        raise UnsupportedError(f"the instruction {r.printed.opcode}")
    c.sub = [*UPDATES, *BIT_UPDATES].index("COUNT" if popc else _UPDATES[action])
    floats = {"F32": 1, "F64": 2}
    c.joined = next((number for name, number in floats.items() if any(name in each for each in r.suffixes)), 0)
    if any(each.startswith(("F16", "BF16")) for each in r.suffixes):
        raise UnsupportedError(f"the instruction {r.printed.opcode}")
    wide_value = c.joined == 2 or r.has("64", "U64", "S64")
    c.bytes = 8 if wide_value else 4
    c.modifiers |= _modifiers("SIGNED_LOAD" if r.has("S32", "S64") else "")
    r.texts = [text for text in r.texts if not re.fullmatch(r"!?P(\d|T)", text)]
    places = [at for at, text in enumerate(r.texts) if text.endswith("]")]
    found = _ADDRESS.match(r.texts[places[0]])
    if found is None:
        raise UnsupportedError(f"the address {r.texts[places[0]]}")
    c.a = _address(found[1], c.space == 0 and (".64" in found[1] or r.has("E")))
    if places[0]:
        c.d = operand(r.texts[0])
    _filled(c, **dict(zip("bc", map(operand, r.texts[places[0] + 1 :]), strict=False)))


def _copy(r: _Reader, c: Coded) -> None:
    c.op, c.bytes = OPERATIONS.index("COPY"), _bytes(r)
    r.predicates()
    to, of = (_ADDRESS.match(text) for text in r.texts[:2])
    if to is None or of is None:
        raise UnsupportedError(f"the instruction {r.printed.opcode} {r.printed.operands}")
    c.a, c.b = _address(to[1], False), _address(of[1], True)


def _branch(r: _Reader, c: Coded) -> None:
    if r.printed.target is None or r.has("CONV"):
        raise UnsupportedError(f"the instruction {r.printed.opcode} {r.printed.operands}")
    c.target = r.printed.target
    conditions = [text for text in r.texts[:-1] if re.fullmatch(r"!?U?P(\d|T)", text)]
    c.p = operand(conditions[0]) if conditions else ALWAYS
    c.modifiers |= _modifiers("DIVERGENT" if r.has("DIV") else "")


def _return(r: _Reader, c: Coded) -> None:
    c.a = operand(r.texts[0].split()[0])


def _exit(r: _Reader, c: Coded) -> None:
    given = r.predicates()
    c.p = given[0] if given else ALWAYS


def _convergence(r: _Reader, c: Coded) -> None:
    texts = [text for text in r.texts if text.startswith("B")]
    c.d = operand(texts[0])
    conditions = [text for text in r.texts if re.fullmatch(r"!?P(\d|T)", text)]
    c.p = operand(conditions[0]) if conditions else ALWAYS


def _barrier(r: _Reader, c: Coded) -> None:
    if not r.has("SYNC") or r.has("RED"):
        raise UnsupportedError(f"the instruction {r.printed.opcode}")
    r.predicates()
    _sources(c, r.all(), "ab")


def _to_float(r: _Reader, c: Coded) -> None:
    c.op = OPERATIONS.index("TO_FLOAT")
    _sources(c, r.all(), "da")
    types = [each for each in r.suffixes if re.fullmatch(r"[USF]\d+|F\d+", each)]
    result = next((each for each in types if each[0] == "F"), "F32")
    source = next((each for each in types if each[0] in "US"), "S32")
    c.sub, c.bytes = int(result[1:]) // 8, int(source[1:]) // 8
    chosen = re.search(r"\.B(\d)", r.texts[1]) or re.search(r"\.H(\d)", r.texts[1])
    c.joined = int(chosen[1]) * (8 if ".B" in r.texts[1] else 16) // 8 if chosen else 0
    c.modifiers |= _modifiers("IS_UNSIGNED" if source[0] == "U" else "", "OF_64" if source.endswith("64") else "")


def _to_integer(r: _Reader, c: Coded) -> None:
    c.op = OPERATIONS.index("TO_INTEGER")
    _sources(c, r.all("f"), "da")
    types = [each for each in r.suffixes if re.fullmatch(r"[USF]\d+", each)]
    result = next((each for each in types if each[0] in "US"), "S32")
    source = next((each for each in types if each[0] == "F"), "F32")
    c.bytes, c.joined = int(result[1:]) // 8, int(source[1:]) // 8
    c.sub = _rounding(r)
    c.modifiers |= _modifiers("IS_UNSIGNED" if result[0] == "U" else "")


def _rounding(r: _Reader) -> int:
    return ROUNDING.index(next((_ROUNDING[each] for each in r.suffixes if each in _ROUNDING), "NEAREST"))


def _convert(r: _Reader, c: Coded) -> None:
    c.op = OPERATIONS.index("CONVERT")
    _sources(c, r.all("f"), "da")
    types = [int(each[-2:]) // 8 for each in r.suffixes if each in ("F16", "F32", "F64", "BF16")]
    c.bytes, c.joined = (*types, types[0])[:2] if types else (4, 4)
    whole = r.name == "FRND" or r.has("TRUNC", "FLOOR", "CEIL")
    c.sub = _rounding(r) if whole else ROUNDING.index("NEAREST")
    c.modifiers |= _modifiers("BFLOAT" if r.has("BF16") else "")


def _pack(r: _Reader, c: Coded) -> None:
    if not r.has("PACK_AB", "PACK_AB_MERGE_C") or any(each.startswith("E") for each in r.suffixes):
        raise UnsupportedError(f"the instruction {r.printed.opcode}")
    c.op = OPERATIONS.index("PACK")
    _sources(c, r.all("f"), "dab")
    c.modifiers |= _modifiers("BFLOAT" if r.has("BF16") else "")


def _halves(r: _Reader, c: Coded) -> None:
    texts: list[str] = []
    for text in r.texts:  # two immediates make one operand
        if re.fullmatch(r"[-+]?(\d[^x]*|QNAN|INF)", text) and texts and texts[-1].startswith("#"):
            texts[-1] += f" {text}"
        else:
            texts.append(f"#{text}" if re.fullmatch(r"[-+]?(\d[^x]*|QNAN|INF)", text) else text)
    code = "<H" if r.has("BF16_V2", "BF16") else "<e"

    def one(text: str) -> Operand:
        if not text.startswith("#"):
            return operand(text)
        low, high = ([*text[1:].split(), *text[1:].split()])[:2]

        def half(number: str) -> bytes:
            value = _as_float(number)
            return struct.pack("<f", value)[2:] if code == "<H" else struct.pack("<e", value)

        value = int.from_bytes(half(high) + half(low), "little")  # the first that is printed is the upper half
        return Operand(kind=IMMEDIATE, value=value - (1 << 32 if value >> 31 else 0), index=ZERO, base=ZERO)

    _sources(c, [one(text) for text in texts])
    c.bytes = 4 if r.has("F32") else 2
    c.modifiers |= _modifiers("BFLOAT" if r.has("BF16_V2", "BF16") else "")


def _shuffle(r: _Reader, c: Coded) -> None:
    c.e = operand(r.texts.pop(0)) if re.fullmatch(r"P(\d|T)", r.texts[0]) else NO_OPERAND
    _sources(c, r.all())
    c.sub = SHUFFLES.index(next(_SHUFFLES[each] for each in r.suffixes if each in _SHUFFLES))


def _vote(r: _Reader, c: Coded) -> None:
    given = r.predicates()
    c.d = operand(r.texts[0]) if r.texts else NO_OPERAND
    *outputs, source = given
    c.e, c.p = (outputs[0] if outputs else NO_OPERAND), source
    c.sub = 0 if r.has("ALL") else 1 if r.has("ANY") else 2


def _reduction(r: _Reader, c: Coded) -> None:
    _sources(c, r.all(), "da")
    action = next((each for each in r.suffixes if each in _UPDATES), "ADD" if r.has("SUM") else "")
    if not action:
        raise UnsupportedError(f"the instruction {r.printed.opcode}")
    c.sub = [*UPDATES, *BIT_UPDATES].index(_UPDATES[action])
    c.modifiers |= _modifiers("SIGNED_LOAD" if r.has("S32") else "")


def _move_barrier(r: _Reader, c: Coded) -> None:
    c.op = OPERATIONS.index("MOVE_BARRIER")
    _sources(c, r.all(), "da")
    c.modifiers |= _modifiers("EXTENDED" if r.has("CLEAR") else "")


def _predicates(r: _Reader, c: Coded) -> None:
    r.texts = [text for text in r.texts if text != "PR"]
    if r.name == "R2P":
        c.op = OPERATIONS.index("TO_PREDICATES")
        _sources(c, r.all(), "ab")
    else:
        c.op = OPERATIONS.index("FROM_PREDICATES")
        _sources(c, r.all(), "dab")


def _nothing(r: _Reader, c: Coded) -> None:
    c.op = OPERATIONS.index("NOP")


_READERS: dict[str, tuple[str, Callable[[_Reader, Coded], None]]] = {
    **dict.fromkeys(("IADD3", "VIADD", "IADD"), ("IADD3", _sum)),
    "IMAD": ("IMAD", _product),
    "LEA": ("LEA", _shifted_sum),
    "LOP3": ("LOP3", _logic),
    "PLOP3": ("PLOP3", _predicate_logic),
    "SHF": ("SHF", _shift),
    "ISETP": ("ISETP", _comparison("")),
    "FSETP": ("FSETP", _comparison("f")),
    "FSET": ("FSET", _comparison("f")),
    "DSETP": ("DSETP", _comparison("d")),
    "SEL": ("SEL", _choice("")),
    "FSEL": ("FSEL", _choice("f")),
    **dict.fromkeys(("IMNMX", "VIMNMX", "VIADDMNMX"), ("IMNMX", _choice(""))),
    "FMNMX": ("FMNMX", _choice("f")),
    "MOV": ("MOV", _plain("", ("64", "OF_64"))),
    **dict.fromkeys(("S2R", "S2UR", "CS2R"), ("SPECIAL", _special)),
    **dict.fromkeys(("LDC", "LDCU"), ("LOAD_CONSTANT", _constant)),
    "R2UR": ("TO_UNIFORM_REGISTER", _plain()),
    "PRMT": ("PRMT", _plain()),
    "POPC": ("POPC", _plain()),
    "FLO": ("FLO", _plain("", ("U32", "IS_UNSIGNED"), ("SH", "EXTENDED"))),
    "BREV": ("BREV", _plain()),
    "IABS": ("IABS", _plain()),
    "SGXT": ("SGXT", _plain("", ("U32", "IS_UNSIGNED"))),
    "BMSK": ("BMSK", _plain()),
    **{name: (name, _addition) for name in ("FADD", "FMUL", "FFMA", "DADD", "DMUL", "DFMA")},
    "MUFU": ("MUFU", lambda r, c: _approximation(r, c)),
    "FCHK": ("FCHK", _plain("f")),
    **dict.fromkeys(("I2F", "I2FP"), ("TO_FLOAT", _to_float)),
    "F2I": ("TO_INTEGER", _to_integer),
    **dict.fromkeys(("F2F", "FRND"), ("CONVERT", _convert)),
    "F2FP": ("PACK", _pack),
    **{name: (name, _halves) for name in ("HADD2", "HMUL2", "HFMA2")},
    "SHFL": ("SHFL", _shuffle),
    "VOTE": ("VOTE", _vote),
    "MATCH": ("MATCH", lambda r, c: _match(r, c)),
    "REDUX": ("REDUX", _reduction),
    **dict.fromkeys(("LDG", "LDS", "LDL", "LD", "STG", "STS", "STL", "ST"), ("LOAD", _memory)),
    **dict.fromkeys(("ATOMG", "ATOM", "ATOMS", "RED", "REDG"), ("ATOMIC", _atomic)),
    "LDGSTS": ("COPY", _copy),
    "BMOV": ("MOVE_BARRIER", _move_barrier),
    **dict.fromkeys(("P2R", "R2P"), ("TO_PREDICATES", _predicates)),
    "IDP": ("DOT", lambda r, c: _dot(r, c)),
    "EXIT": ("EXIT", _exit),
    "BRA": ("BRA", _branch),
    "CALL": ("CALL", _branch),
    "RET": ("RET", _return),
    "BSSY": ("BSSY", _convergence),
    "BSYNC": ("BSYNC", _convergence),
    "BREAK": ("BREAK", _convergence),
    "BAR": ("BAR", _barrier),
    **dict.fromkeys(
        ("NOP", "YIELD", "WARPSYNC", "MEMBAR", "ERRBAR", "CCTL", "DEPBAR", "LDGDEPBAR", "NANOSLEEP", "ACQBULK"),
        ("NOP", _nothing),
    ),
    **dict.fromkeys(("CCTLL", "FENCE", "PREEXIT", "CGAERRBAR", "ELECT_NONE", "WARPSYNC"), ("NOP", _nothing)),
}


def _approximation(r: _Reader, c: Coded) -> None:
    function = next((each for each in r.suffixes if each in APPROXIMATE), None)
    double = next((each for each in r.suffixes if each in ("RCP64H", "RSQ64H")), None)
    if function is None and double is None:
        raise UnsupportedError(f"the instruction {r.printed.opcode}")
    _sources(c, r.all("f"))
    c.sub = APPROXIMATE.index(function or str(double)[:3])
    c.modifiers |= _modifiers("OF_64" if double else "")


def _match(r: _Reader, c: Coded) -> None:
    if not r.has("ANY"):
        raise UnsupportedError(f"the instruction {r.printed.opcode}")
    r.predicates()
    _sources(c, r.all())


def _dot(r: _Reader, c: Coded) -> None:
    if not r.has("4A"):
        raise UnsupportedError(f"the instruction {r.printed.opcode}")
    _sources(c, r.all())
    c.modifiers |= _modifiers("IS_UNSIGNED" if r.has("U8") else "")


def decode(code: Sequence[Printed]) -> ctypes.Array[Coded]:
    """Return a function's instructions as machine.cpp executes them; UnsupportedError names what it does not execute.

    Examples
    --------
    >>> decode([Printed("", "IADD3", " R2, R3, 0x1, RZ")])[0].b.value
    1
    """
    made = (Coded * len(code))()
    for each, coded in zip(code, made, strict=True):
        _one(each, coded)
    return made


def _one(each: Printed, coded: Coded) -> None:
    name, *suffixes = each.opcode.split(".")
    uniform = name.startswith("U") and name[1:] in _READERS
    plain = name[1:] if uniform else {"VOTEU": "VOTE"}.get(name, name)
    if plain not in _READERS or any(text.startswith("cx[") for text in _split(each.operands)):
        raise UnsupportedError(f"the instruction {each.opcode} is not counted")
    operation, read = _READERS[plain]
    for slot in "defabcpq":
        setattr(coded, slot, NO_OPERAND)
    coded.p = coded.q = NO_OPERAND
    coded.op = OPERATIONS.index(operation)
    coded.stall, coded.waits = each.stall, each.waits
    coded.scoreboard = -1 if each.scoreboard is None else each.scoreboard
    coded.guard, coded.guard_flags = TRUE, 0
    if each.predicate:
        guard = operand(each.predicate)
        coded.guard = guard.index
        coded.guard_flags = guard.flags | (BASE_UNIFORM if guard.kind == UNIFORM_PREDICATE else 0)
    coded.modifiers = _modifiers("TO_UNIFORM" if uniform else "")
    try:
        read(_Reader(each, plain, tuple(suffixes), _split(each.operands)), coded)
    except UnsupportedError as error:
        raise UnsupportedError(f"{error}, in {each.opcode} {each.operands}") from None
