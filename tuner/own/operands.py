"""Operands and codes of instructions, as machine/machine.cpp executes them, from what nvdisasm prints."""

from __future__ import annotations

import ctypes
import re
import struct

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
RELATION_OF = dict(zip(("LT", "EQ", "LE", "GT", "NE", "GE", "T", "NUM", "NAN", "F"), RELATIONS, strict=True))
UPDATES = ("ADD", "MINIMUM", "MAXIMUM", "EXCHANGE", "COMPARE", "INCREMENT", "DECREMENT", "COUNT")
BIT_UPDATES = ("ALL_BITS", "ANY_BITS", "ODD_BITS")
UPDATE_OF = dict(
    zip(
        ("ADD", "MIN", "MAX", "EXCH", "CAS", "INC", "DEC", "AND", "OR", "XOR"),
        (*UPDATES[:7], *BIT_UPDATES),
        strict=True,
    )
)
APPROXIMATE = ("RCP", "RSQ", "EX2", "LG2", "SIN", "COS", "SQRT", "TANH")
ROUNDING = ("NEAREST", "TO_ZERO", "DOWN", "UP")
ROUNDING_OF = {"TRUNC": "TO_ZERO", "RZ": "TO_ZERO", "FLOOR": "DOWN", "RM": "DOWN", "CEIL": "UP", "RP": "UP"}
SHUFFLES = ("SHUFFLE_UP", "SHUFFLE_DOWN", "SHUFFLE_BUTTERFLY", "SHUFFLE_INDEX")
SHUFFLE_OF = dict(zip(("UP", "DOWN", "BFLY", "IDX"), SHUFFLES, strict=True))
SPECIAL = (
    *("NO_SPECIAL", "TID_X", "TID_Y", "TID_Z", "CTAID_X", "CTAID_Y", "CTAID_Z", "LANEID"),
    *("EQMASK", "LTMASK", "LEMASK", "GTMASK", "GEMASK", "CLOCK"),
)
_ENUMS = (OPERATIONS, RELATIONS, (*UPDATES, *BIT_UPDATES), APPROXIMATE, ROUNDING, SHUFFLES, SPECIAL)
_MODIFIERS = (
    *("IS_UNSIGNED", "CARRIES", "UPPER", "WIDE", "EXTENDED", "SIGN_EXTENDED", "WRAPS", "SIGNED_LOAD", "WITH_AND"),
    *("OF_64", "TO_UNIFORM", "BFLOAT", "DIVERGENT", "UPPER_RESULT", "UNORDERED", "RETURNS"),
)
BIT = {name: 1 << place for place, name in enumerate(_MODIFIERS)}
KINDS = (
    *("NOTHING", "REGISTER", "UNIFORM", "PREDICATE", "UNIFORM_PREDICATE", "IMMEDIATE", "CONSTANT", "BARRIER"),
    "ADDRESS",
)
NOTHING, REGISTER, UNIFORM, PREDICATE, UNIFORM_PREDICATE, IMMEDIATE, CONSTANT, BARRIER, ADDRESS = range(len(KINDS))
#: NEGATED and ABSOLUTE are of numbers, INVERTED of bits; LOW and HIGH choose a half of a register; PAIR is of 64 bits.
FLAGS = ("NEGATED", "ABSOLUTE", "INVERTED", "LOW", "HIGH", "PAIR", "BASE_UNIFORM")
NEGATED, ABSOLUTE, INVERTED, LOW, HIGH, PAIR, BASE_UNIFORM = (1 << place for place in range(len(FLAGS)))
ZERO, TRUE = 255, 7


def enumerations() -> str:
    """Return the C++ text of the enumerations that machine.cpp shares with this file."""
    made = [f"enum {{ {', '.join(names)} }};\n" for names in (*_ENUMS, KINDS)]
    made += [
        f"enum {{ {', '.join(f'{name} = {1 << place}' for place, name in enumerate(names))} }};\n"
        for names in (FLAGS, _MODIFIERS)
    ]
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
ADDRESSES = re.compile(r"(?:desc\[UR\d+\])?(?:desc\[URZ\])?\[([^\]]*)\]\Z")
_INTEGER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)\Z")
_KINDS = {"R": REGISTER, "UR": UNIFORM, "P": PREDICATE, "UP": UNIFORM_PREDICATE, "B": BARRIER}


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


def address(text: str, wide: bool) -> Operand:
    """Return the address in the brackets of an operand, of 64 bits where it is `wide`."""
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


def as_float(text: str) -> float:
    """Return a printed float."""
    text = text.replace("QNAN", "nan").replace("SNAN", "nan").replace("INF", "inf")
    return float(text)


def immediate(value: int) -> Operand:
    """Return a word as an immediate."""
    return Operand(kind=IMMEDIATE, value=value - (1 << 32 if value >> 31 else 0), index=ZERO, base=ZERO)


def operand(text: str, numbers: str = "") -> Operand:
    """Return an operand; `numbers`: f, d or h where immediates are floats, doubles or halves, else integers."""
    flags = 0
    text = text.replace(".reuse", "")
    if _INTEGER.match(text) and not (numbers and "0x" not in text):
        return immediate(int(text, 0) & 0xFFFFFFFF)
    if numbers and re.fullmatch(r"[-+]?(\d.*|QNAN|SNAN|INF)", text):
        packed = {"f": "<f", "d": "<d", "h": "<e"}[numbers]
        made = struct.pack(packed, as_float(text))
        return immediate(int.from_bytes(made[4:] if numbers == "d" else made, "little"))
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
