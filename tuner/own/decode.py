"""Instructions of machine code, from what nvdisasm prints, as machine/machine.cpp executes them."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gensor_kernels.build.instruction import Instruction as Printed
from gensor_kernels.errors import UnsupportedError

from .operands import (
    ADDRESSES,
    ALWAYS,
    APPROXIMATE,
    BASE_UNIFORM,
    BIT,
    BIT_UPDATES,
    IMMEDIATE,
    INVERTED,
    NO_OPERAND,
    NOTHING,
    OPERATIONS,
    PREDICATE,
    REGISTER,
    RELATION_OF,
    RELATIONS,
    ROUNDING,
    ROUNDING_OF,
    SHUFFLE_OF,
    SHUFFLES,
    SPECIAL,
    TRUE,
    UNIFORM_PREDICATE,
    UPDATE_OF,
    UPDATES,
    ZERO,
    Coded,
    Operand,
    address,
    as_float,
    immediate,
    operand,
)

NEVER = Operand(kind=PREDICATE, index=TRUE, flags=INVERTED, base=ZERO)
#: Modifiers by suffix.
SIGNS = {"U32": "IS_UNSIGNED"}
NARROW = {"S8": "SIGNED_LOAD", "S16": "SIGNED_LOAD"}
BRAINS = {"BF16": "BFLOAT", "BF16_V2": "BFLOAT"}
_PREDICATE = r"U?P(\d|T)"


@dataclass
class _Reader:
    """A printed instruction (name without U, suffixes, texts of operands), and what it is coded to."""

    printed: Printed
    name: str
    suffixes: tuple[str, ...]
    texts: list[str]
    coded: Coded

    def has(self, *names: str) -> bool:
        return any(name in self.suffixes for name in names)

    def need(self, holds: object) -> None:
        """UnsupportedError where something does not hold."""
        if not holds:
            raise UnsupportedError(f"the instruction {self.printed.opcode}")

    def predicates(self) -> list[Operand]:
        """Take predicates off the end of the operands."""
        taken: list[Operand] = []
        while self.texts and re.fullmatch(rf"!?{_PREDICATE}", self.texts[-1]):
            taken.insert(0, operand(self.texts.pop()))
        return taken

    def outputs(self) -> list[Operand]:
        """Take predicates that follow the result."""
        taken = []
        while len(self.texts) > 1 and re.fullmatch(_PREDICATE, self.texts[1]):
            taken.append(operand(self.texts.pop(1)))
        return taken

    def all(self, numbers: str = "") -> list[Operand]:
        return [operand(text, numbers) for text in self.texts]

    def fill(self, slots: str, operands: Iterable[Operand]) -> None:
        """Put operands into slots, as far as there are some."""
        for slot, given in zip(slots, operands, strict=False):
            setattr(self.coded, slot, given)

    def modify(self, *names: str) -> None:
        self.coded.modifiers |= sum(BIT[name] for name in names)

    def modify_by(self, bits: dict[str, str]) -> None:
        """Set the modifiers of the suffixes that are there."""
        self.modify(*{bit for suffix, bit in bits.items() if self.has(suffix)})


@dataclass(frozen=True)
class _Form:
    """The form of an instruction: its operation, the slots of its operands, and modifiers by suffix.

    `given` are the slots of predicates at the end, `carries` those of predicates after the result, None where there can
    be none. `numbers`: immediates are of this kind. `then` reads what is beyond that.
    """

    operation: str
    slots: str = "dabc"
    bits: dict[str, str] | None = None
    given: str | None = None
    carries: str | None = ""
    numbers: str = ""
    then: Callable[[_Reader, Coded], None] | None = None
    first: Callable[[_Reader, Coded], None] | None = None

    def read(self, r: _Reader) -> None:
        """Code an instruction."""
        if self.first is not None:
            self.first(r, r.coded)
        if self.given is not None:
            r.fill(self.given, r.predicates() or [ALWAYS])
        if self.carries is not None:
            r.fill(self.carries, r.outputs())
        if self.slots:
            r.fill(self.slots, r.all(self.numbers))
        r.modify_by(self.bits or {})
        if self.then is not None:
            self.then(r, r.coded)


def _alone(operation: str, read: Callable[[_Reader, Coded], None]) -> _Form:
    """Return the form of an instruction that `read` reads alone."""
    return _Form(operation, "", carries=None, first=read)


def _sum(r: _Reader, c: Coded) -> None:
    given, carries = r.predicates(), r.outputs()
    if r.has("64") or r.name == "IADD":
        c.op = OPERATIONS.index("IADD_64")
    r.fill("dabc", r.all())
    if r.name == "VIADD" or c.c.kind == NOTHING:
        c.c = Operand(kind=REGISTER, index=ZERO, base=ZERO)
    r.fill("ef", carries)
    if r.has("X"):
        r.modify("CARRIES")
        c.p, c.q = [*given, NEVER, NEVER][:2]


def _shifted_sum(r: _Reader, c: Coded) -> None:
    given = r.predicates()
    c.q = operand(r.texts.pop())  # the shift
    r.fill("p", given)


def _logic(r: _Reader, c: Coded) -> None:
    given = r.predicates()
    if re.fullmatch(_PREDICATE, r.texts[0]):
        c.e = operand(r.texts.pop(0))
    *operands, table = r.all()
    r.fill("dabc", operands)
    c.sub = table.value & 0xFF
    c.p = given[0] if given else NEVER
    r.modify_by({"PAND": "WITH_AND"})


def _predicate_logic(r: _Reader, c: Coded) -> None:
    second, first = operand(r.texts.pop()), operand(r.texts.pop())
    c.sub, c.joined = first.value & 0xFF, second.value & 0xFF


def _shift(r: _Reader, c: Coded) -> None:
    kind = next((each for each in ("U32", "U64", "S32", "S64") if r.has(each)), "U32")
    r.modify(*(["IS_UNSIGNED"] if kind[0] == "U" else []), *(["OF_64"] if kind.endswith("64") else []))


def _comparison(operation: str, numbers: str = "") -> _Form:
    def read(r: _Reader, c: Coded) -> None:
        given = r.predicates()
        r.fill("deab" if r.name != "FSET" else "dab", r.all(numbers))
        relation = next(each for each in r.suffixes if each in RELATION_OF or each[:-1] in RELATION_OF)
        if relation not in RELATION_OF:
            relation = relation[:-1]
            r.modify("UNORDERED")
        c.sub = RELATIONS.index(RELATION_OF[relation])
        c.joined = 1 if r.has("OR") else 2 if r.has("XOR") else 0
        c.p, c.q = [*(given or [ALWAYS]), NO_OPERAND][:2]
        r.modify_by({**SIGNS, "U64": "IS_UNSIGNED", "EX": "EXTENDED", "BF": "UPPER_RESULT"})
        r.modify_by(dict.fromkeys(("64", "U64", "S64"), "OF_64"))

    return _alone(operation, read)


def _choice(operation: str, numbers: str = "") -> _Form:
    def then(r: _Reader, c: Coded) -> None:
        if r.name == "VIADDMNMX":  # a sum first
            r.modify("EXTENDED")

    return _Form(operation, bits={**SIGNS, "64": "OF_64"}, given="p", numbers=numbers, then=then)


def _special(r: _Reader, c: Coded) -> None:
    c.d = operand(r.texts[0])
    name = r.texts[1].removeprefix("SR_").replace(".", "_").upper()
    name = {"CLOCKLO": "CLOCK", "CLOCKHI": "NO_SPECIAL", "CGACTAID": "NO_SPECIAL"}.get(name, name)
    if name not in SPECIAL and not name.startswith(("SRZ", "Z", "SMEMSZ", "CGA", "NCTAID", "VIRTUAL", "GLOBALTIMER")):
        raise UnsupportedError(f"the special register {r.texts[1]}")
    c.a = Operand(kind=IMMEDIATE, index=SPECIAL.index(name) if name in SPECIAL else 0, base=ZERO)
    if r.name == "CS2R" and not r.has("32"):
        r.modify("OF_64")


def _width(r: _Reader, c: Coded) -> None:
    widths = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "F16": 2}
    c.bytes = next((widths[each] for each in r.suffixes if each in widths), 4)


def _place(r: _Reader, text: str, of_global: bool) -> Operand:
    """Return an operand that is an address, of 64 bits in global memory where the instruction says so."""
    found = ADDRESSES.match(text)
    if found is None:
        raise UnsupportedError(f"the address {text}")
    return address(found[1], of_global and (".64" in found[1] or r.has("E")))


def _memory(r: _Reader, c: Coded) -> None:
    letter = r.name[-1] if r.name[-1] in "GSL" and len(r.name) > 2 else "G"
    c.space = "GSL".index(letter)
    _width(r, c)
    r.predicates()
    at = next(at for at, text in enumerate(r.texts) if text.endswith("]") and not text.startswith("c["))
    r.modify_by(NARROW)
    c.a = _place(r, r.texts[at], c.space == 0)
    if r.name.startswith("LD"):
        c.d = operand(r.texts[0])
    else:
        c.op, c.b = OPERATIONS.index("STORE"), operand(r.texts[at + 1])


def _update(r: _Reader, other: str = "") -> int:
    """Return the code of the operation that updates memory or reduces; `other`: where no suffix names it."""
    action = next((UPDATE_OF[each] for each in r.suffixes if each in UPDATE_OF), other)
    r.need(action)
    return [*UPDATES, *BIT_UPDATES].index(action)


def _atomic(r: _Reader, c: Coded) -> None:
    c.space = 1 if r.name == "ATOMS" else 0
    c.sub = UPDATES.index("COUNT") if r.has("POPC") else _update(r, "COMPARE" if c.space and r.has("CAST") else "")
    floats = {"F32": 1, "F64": 2}
    c.joined = next((number for name, number in floats.items() if any(name in each for each in r.suffixes)), 0)
    r.need(not any(each.startswith(("F16", "BF16")) for each in r.suffixes))
    c.bytes = 8 if c.joined == 2 or r.has("64", "U64", "S64") else 4
    r.modify_by({"S32": "SIGNED_LOAD", "S64": "SIGNED_LOAD"})
    r.texts = [text for text in r.texts if not re.fullmatch(r"!?P(\d|T)", text)]
    at = next(at for at, text in enumerate(r.texts) if text.endswith("]"))
    c.a = _place(r, r.texts[at], c.space == 0)
    if at:
        c.d = operand(r.texts[0])
    r.fill("bc", map(operand, r.texts[at + 1 :]))


def _copy(r: _Reader, c: Coded) -> None:
    _width(r, c)
    r.predicates()
    to, of = (ADDRESSES.match(text) for text in r.texts[:2])
    r.need(to and of)
    assert to is not None and of is not None
    c.a, c.b = address(to[1], False), address(of[1], True)


def _branch(r: _Reader, c: Coded) -> None:
    if r.printed.target is None or r.has("CONV"):
        raise UnsupportedError(f"the instruction {r.printed.opcode} {r.printed.operands}")
    c.target = r.printed.target
    c.p = next((operand(text) for text in r.texts[:-1] if re.fullmatch(rf"!?{_PREDICATE}", text)), ALWAYS)
    r.modify_by({"DIV": "DIVERGENT"})


def _return(r: _Reader, c: Coded) -> None:
    c.a = operand(r.texts[0].split()[0])


def _convergence(r: _Reader, c: Coded) -> None:
    c.d = next(operand(text) for text in r.texts if text.startswith("B"))
    c.p = next((operand(text) for text in r.texts if re.fullmatch(r"!?P(\d|T)", text)), ALWAYS)


def _types(r: _Reader, letters: str) -> str | None:
    """Return the first type among the suffixes that begins with one of these letters."""
    found = (each for each in r.suffixes if re.fullmatch(r"[USF]\d+", each))
    return next((each for each in found if each[0] in letters), None)


def _to_float(r: _Reader, c: Coded) -> None:
    result, source = _types(r, "F") or "F32", _types(r, "US") or "S32"
    c.sub, c.bytes = int(result[1:]) // 8, int(source[1:]) // 8
    chosen = re.search(r"\.B(\d)", r.texts[1]) or re.search(r"\.H(\d)", r.texts[1])
    c.joined = int(chosen[1]) * (8 if ".B" in r.texts[1] else 16) // 8 if chosen else 0
    r.modify(*(["IS_UNSIGNED"] if source[0] == "U" else []), *(["OF_64"] if source.endswith("64") else []))


def _to_integer(r: _Reader, c: Coded) -> None:
    result, source = _types(r, "US") or "S32", _types(r, "F") or "F32"
    c.bytes, c.joined = int(result[1:]) // 8, int(source[1:]) // 8
    c.sub = _rounding(r)
    r.modify(*(["IS_UNSIGNED"] if result[0] == "U" else []))


def _rounding(r: _Reader) -> int:
    return ROUNDING.index(next((ROUNDING_OF[each] for each in r.suffixes if each in ROUNDING_OF), "NEAREST"))


def _convert(r: _Reader, c: Coded) -> None:
    types = [int(each[-2:]) // 8 for each in r.suffixes if each in ("F16", "F32", "F64", "BF16")]
    c.bytes, c.joined = (*types, types[0])[:2] if types else (4, 4)
    whole = r.name == "FRND" or r.has("TRUNC", "FLOOR", "CEIL")
    c.sub = _rounding(r) if whole else ROUNDING.index("NEAREST")


def _halves(r: _Reader, c: Coded) -> None:
    texts: list[str] = []
    for text in r.texts:  # two immediates make one operand
        is_number = re.fullmatch(r"[-+]?(\d[^x]*|QNAN|INF)", text)
        if is_number and texts and texts[-1].startswith("#"):
            texts[-1] += f" {text}"
        else:
            texts.append(f"#{text}" if is_number else text)
    brains = r.has(*BRAINS)

    def half(number: str) -> bytes:
        value = as_float(number)
        return struct.pack("<f", value)[2:] if brains else struct.pack("<e", value)

    def one(text: str) -> Operand:
        if not text.startswith("#"):
            return operand(text)
        low, high = (2 * text[1:].split())[:2]
        return immediate(
            int.from_bytes(half(high) + half(low), "little")
        )  # the first that is printed is the upper half

    r.fill("dabc", map(one, texts))
    c.bytes = 4 if r.has("F32") else 2
    r.modify_by(BRAINS)


def _shuffle(r: _Reader, c: Coded) -> None:
    if re.fullmatch(r"P(\d|T)", r.texts[0]):
        c.e = operand(r.texts.pop(0))
    c.sub = SHUFFLES.index(next(SHUFFLE_OF[each] for each in r.suffixes if each in SHUFFLE_OF))


def _vote(r: _Reader, c: Coded) -> None:
    *outputs, source = r.predicates()
    r.fill("d", r.all())
    c.e, c.p = (outputs[0] if outputs else NO_OPERAND), source
    c.sub = 0 if r.has("ALL") else 1 if r.has("ANY") else 2


def _reduction(r: _Reader, c: Coded) -> None:
    c.sub = _update(r, "ADD" if r.has("SUM") else "")


def _predicates(r: _Reader, c: Coded) -> None:
    r.texts = [text for text in r.texts if text != "PR"]
    c.op = OPERATIONS.index("TO_PREDICATES" if r.name == "R2P" else "FROM_PREDICATES")
    r.fill("ab" if r.name == "R2P" else "dab", r.all())


def _approximation(r: _Reader, c: Coded) -> None:
    double = next((each for each in r.suffixes if each in ("RCP64H", "RSQ64H")), "")
    function = next((each for each in r.suffixes if each in APPROXIMATE), double[:3])
    r.need(function)
    c.sub = APPROXIMATE.index(function)
    r.modify(*(["OF_64"] if double else []))


def _needs(*names: str) -> Callable[[_Reader, Coded], None]:
    """Return what refuses instructions without one of these suffixes."""
    return lambda r, c: r.need(r.has(*names))


def _packs(r: _Reader, c: Coded) -> None:
    r.need(r.has("PACK_AB", "PACK_AB_MERGE_C") and not any(each.startswith("E") for each in r.suffixes))


_NOTHING = _Form("NOP", "", carries=None)
_PRODUCT = _Form("IMAD", given="p", carries="e", bits={**SIGNS, "WIDE": "WIDE", "HI": "UPPER", "X": "CARRIES"})
_LEA = _Form("LEA", carries="e", bits={"HI": "UPPER", "X": "CARRIES", "SX32": "SIGN_EXTENDED"}, first=_shifted_sum)
_FORMS: dict[str, _Form] = {
    **dict.fromkeys(("IADD3", "VIADD", "IADD"), _alone("IADD3", _sum)),
    "IMAD": _PRODUCT,
    "LEA": _LEA,
    "LOP3": _alone("LOP3", _logic),
    "PLOP3": _Form("PLOP3", "deabc", carries=None, first=_predicate_logic),
    "SHF": _Form("SHF", carries=None, bits={"HI": "UPPER", "W": "WRAPS", "R": "RETURNS"}, then=_shift),
    **{name: _comparison(name, kind) for name, kind in (("ISETP", ""), ("FSETP", "f"), ("FSET", "f"), ("DSETP", "d"))},
    "SEL": _choice("SEL"),
    "FSEL": _choice("FSEL", "f"),
    **dict.fromkeys(("IMNMX", "VIMNMX", "VIADDMNMX"), _choice("IMNMX")),
    "FMNMX": _choice("FMNMX", "f"),
    "MOV": _Form("MOV", bits={"64": "OF_64"}),
    **dict.fromkeys(("S2R", "S2UR", "CS2R"), _alone("SPECIAL", _special)),
    **dict.fromkeys(("LDC", "LDCU"), _Form("LOAD_CONSTANT", carries=None, bits=NARROW, then=_width)),
    "R2UR": _Form("TO_UNIFORM_REGISTER"),
    **{name: _Form(name) for name in ("PRMT", "POPC", "BREV", "IABS", "BMSK")},
    "FLO": _Form("FLO", bits={**SIGNS, "SH": "EXTENDED"}),
    "SGXT": _Form("SGXT", bits=SIGNS),
    **{
        f"{kind}{name}": _Form(f"{kind}{name}", bits={"SAT": "WRAPS"}, given="", carries=None, numbers=kind.lower())
        for kind in "FD"
        for name in ("ADD", "MUL", "FMA")
    },
    "MUFU": _Form("MUFU", carries=None, numbers="f", first=_approximation),
    "FCHK": _Form("FCHK", numbers="f"),
    **dict.fromkeys(("I2F", "I2FP"), _Form("TO_FLOAT", "da", carries=None, then=_to_float)),
    "F2I": _Form("TO_INTEGER", "da", carries=None, numbers="f", then=_to_integer),
    **dict.fromkeys(("F2F", "FRND"), _Form("CONVERT", "da", BRAINS, carries=None, numbers="f", then=_convert)),
    "F2FP": _Form("PACK", "dab", BRAINS, carries=None, numbers="f", first=_packs),
    **{name: _alone(name, _halves) for name in ("HADD2", "HMUL2", "HFMA2")},
    "SHFL": _Form("SHFL", carries=None, first=_shuffle),
    "VOTE": _alone("VOTE", _vote),
    "MATCH": _Form("MATCH", given="", carries=None, first=_needs("ANY")),
    "REDUX": _Form("REDUX", "da", {"S32": "SIGNED_LOAD"}, carries=None, then=_reduction),
    **dict.fromkeys(("LDG", "LDS", "LDL", "LD", "STG", "STS", "STL", "ST"), _alone("LOAD", _memory)),
    **dict.fromkeys(("ATOMG", "ATOM", "ATOMS", "RED", "REDG"), _alone("ATOMIC", _atomic)),
    "LDGSTS": _alone("COPY", _copy),
    "BMOV": _Form("MOVE_BARRIER", "da", {"CLEAR": "EXTENDED"}, carries=None),
    **dict.fromkeys(("P2R", "R2P"), _alone("TO_PREDICATES", _predicates)),
    "IDP": _Form("DOT", bits={"U8": "IS_UNSIGNED"}, carries=None, first=_needs("4A")),
    "EXIT": _Form("EXIT", "", given="p", carries=None),
    **dict.fromkeys(("BRA", "CALL"), _alone("", _branch)),
    "RET": _alone("RET", _return),
    **{name: _alone(name, _convergence) for name in ("BSSY", "BSYNC", "BREAK")},
    "BAR": _Form("BAR", "ab", given="", carries=None, first=lambda r, c: r.need(r.has("SYNC") and not r.has("RED"))),
    **dict.fromkeys(
        ("NOP", "YIELD", "WARPSYNC", "MEMBAR", "ERRBAR", "CCTL", "DEPBAR", "LDGDEPBAR", "NANOSLEEP", "ACQBULK"),
        _NOTHING,
    ),
    **dict.fromkeys(("CCTLL", "FENCE", "PREEXIT", "CGAERRBAR", "ELECT_NONE"), _NOTHING),
}


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
    uniform = name.startswith("U") and name[1:] in _FORMS
    plain = name[1:] if uniform else {"VOTEU": "VOTE"}.get(name, name)
    texts = [part.strip() for part in each.operands.split(",")] if each.operands.strip() else []
    if plain not in _FORMS or any(text.startswith("cx[") for text in texts):
        raise UnsupportedError(f"the instruction {each.opcode} is not counted")
    form = _FORMS[plain]
    for slot in "defabcpq":
        setattr(coded, slot, NO_OPERAND)
    coded.op = OPERATIONS.index(form.operation or plain)
    coded.stall, coded.waits = each.stall, each.waits
    coded.scoreboard = -1 if each.scoreboard is None else each.scoreboard
    coded.guard, coded.guard_flags = TRUE, 0
    if each.predicate:
        guard = operand(each.predicate)
        coded.guard = guard.index
        coded.guard_flags = guard.flags | (BASE_UNIFORM if guard.kind == UNIFORM_PREDICATE else 0)
    coded.modifiers = BIT["TO_UNIFORM"] if uniform else 0
    try:
        form.read(_Reader(each, plain, tuple(suffixes), texts, coded))
    except UnsupportedError as error:
        raise UnsupportedError(f"{error}, in {each.opcode} {each.operands}") from None
