"""Multiplications and additions that ptxas makes one instruction, so that bits are the GPU's.

`mul`, `add` and `sub` without a rounding mode may be fused (PTX ISA, 9.7.3: add). ptxas fuses a product that only
additions and subtractions read, each of them, in its own straight piece of code; of a sum of two products, that with
fewer readers, else the first.
`tests/ptx/test_fusion.py` compares that with the machine code.
"""

from collections import defaultdict
from dataclasses import replace

from .parse import Address, Entry, Instruction, Module, Operand, Pair, Register, Vector

PRODUCTS, NEGATIONS = ("mul.f32", "mul.f64"), ("neg.f32", "neg.f64")
SUMS = ("add.f32", "add.f64", "sub.f32", "sub.f64")
#: opcodes after which another piece of straight code begins
ENDS = ("bra", "brx", "ret", "exit", "bar", "barrier")


def fused(module: Module) -> Module:
    """Return a module whose products are fused."""
    return replace(module, entries=[_Fusion(each).entry() for each in module.entries])


class _Fusion:
    def __init__(self, entry: Entry):
        self._entry, self._body = entry, list(entry.body)
        self._registers = dict(entry.registers)
        self._piece: list[int] = []
        self._readers: dict[Operand, list[int]] = defaultdict(list)
        self._writers: dict[Operand, list[int]] = defaultdict(list)
        piece = 0
        for place, each in enumerate(self._body):
            piece += isinstance(each, str)
            self._piece.append(piece)
            if isinstance(each, Instruction):
                piece += each.opcode.partition(".")[0] in ENDS
                self._index(place, each)

    def _index(self, place: int, i: Instruction) -> None:
        written = _registers(i.operands[:1]) if i.operands and not isinstance(i.operands[0], Address) else []
        for each in written:
            self._writers[each].append(place)
        for each in _registers(i.operands)[len(written) :] + ([i.guard[0]] if i.guard else []):
            self._readers[each].append(place)

    def entry(self) -> Entry:
        """Return the entry with fused products."""
        before: dict[int, list[Instruction]] = {}
        for each in self._body:
            if isinstance(each, Instruction) and each.opcode in SUMS:
                for term in sorted(each.operands[1:], key=lambda term: len(self._readers[term])):
                    self._fuse(term, before)
        body = [line for place, each in enumerate(self._body) for line in (*before.get(place, ()), each)]
        return replace(self._entry, body=body, registers=self._registers)

    def _product(self, term: Operand) -> int | None:
        """Return the place of the product that a term is, or whose negation it is."""
        writers = self._writers[term]
        i = self._body[writers[0]] if len(writers) == 1 else ""
        if isinstance(i, Instruction) and not i.guard and i.opcode in NEGATIONS:
            return self._product(i.operands[1])
        return writers[0] if isinstance(i, Instruction) and not i.guard and i.opcode in PRODUCTS else None

    def _fuse(self, term: Operand, before: dict[int, list[Instruction]]) -> None:
        place = self._product(term)
        if place is None:
            return
        product = self._body[place]
        assert isinstance(product, Instruction)
        d, a, b = product.operands
        names = {d: False}  # of the product, and of its negation: whether it is one
        sums = []
        for reader in self._readers[d]:
            each = self._body[reader]
            if isinstance(each, Instruction) and each.opcode in NEGATIONS and not each.guard:
                names[each.operands[0]] = True
                sums += self._readers[each.operands[0]]
            else:
                sums.append(reader)
        if not sums or not all(self._reads_once(place, each, names) for each in sums):
            return
        if any(len(self._writers[each]) > 1 for each in names):
            return
        if any(place < write < max(sums) for each in (a, b) for write in self._writers[each]):
            return
        for reader in sums:
            self._one(reader, names, a, b, before)

    def _reads_once(self, place: int, reader: int, names: dict[Operand, bool]) -> bool:
        i = self._body[reader]
        return (
            isinstance(i, Instruction)
            and i.opcode in SUMS
            and not i.guard
            and self._piece[reader] == self._piece[place]
            and sum(each in names for each in i.operands[1:]) == 1
        )

    def _one(
        self, place: int, names: dict[Operand, bool], a: Operand, b: Operand, before: dict[int, list[Instruction]]
    ) -> None:
        """Make one sum an fma, with negations of a factor and of the other term in front where they are needed."""
        i = self._body[place]
        assert isinstance(i, Instruction)
        d, x, y = i.operands
        kind, subtracted = i.opcode[4:], i.opcode.startswith("sub")
        first = x in names
        negated = names[x if first else y] != (subtracted and not first)
        other = y if first else x
        lines = before.setdefault(place, [])

        def minus(operand: Operand) -> Operand:
            register = Register(f"fused_{len(self._registers)}", int(kind[1:]))
            self._registers[register.name] = register
            lines.append(Instruction(f"{i.text} [fused]", None, f"neg.{kind}", (register, operand)))
            return register

        factor = minus(a) if negated else a
        term = minus(other) if subtracted and first else other
        self._body[place] = Instruction(f"{i.text} [fused]", None, f"fma.rn.{kind}", (d, factor, b, term))


def _registers(operands: tuple[Operand | None, ...]) -> list[Operand]:
    """Return the registers among operands, in their order, parts of vectors and addresses too."""
    found: list[Operand] = []
    for each in operands:
        if isinstance(each, Register):
            found.append(each)
        elif isinstance(each, Vector):
            found += _registers(each.parts)
        elif isinstance(each, Pair):
            found += _registers((each.first, each.second))
        elif isinstance(each, Address) and isinstance(each.base, Register):
            found.append(each.base)
    return found
