"""Products and sums that ptxas makes one instruction: the translation fuses the same as the machine code."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.resources import find_nvdisasm
from gensor_kernels.devices.ptx.compile import ptx_of
from gensor_kernels.devices.ptx.translation.fusion import fused
from gensor_kernels.devices.ptx.translation.parse import Address, Instruction, Module, Operand, parse

#: Sums of one and of two products, negated ones, and products that are read more than once.
STATEMENTS = """
struct Params { TYPE *to; const TYPE *from; };
extern "C" __global__ void test(Params params) {
    TYPE *const to = params.to;
    TYPE x[24];
    for (int i = 0; i < 24; ++i) x[i] = params.from[i];
    to[0] = x[0] * x[1] + x[2] * x[3];
    to[1] = x[2] * x[4] - x[3] * x[1];
    to[2] = x[5] - x[6] * x[7];
    to[3] = -(x[8] * x[9]) - x[10];
    const TYPE stored = x[11] * x[12], added = x[13] * x[14], both = x[15] * x[16];
    to[4] = stored, to[5] = stored + x[0], to[6] = x[1] - stored;
    to[7] = added + x[0], to[8] = added - x[2], to[9] = x[3] - added;
    to[10] = both - x[17] * x[18], to[11] = x[17] * x[19] - both;
    to[12] = x[20] * x[21] * x[22] - x[23];
}
"""

Term = tuple[str, bool]  # an expression, and whether it is negated


def _sign(term: Term) -> str:
    return f"-{term[0]}" if term[1] else term[0]


def _product(a: Term, b: Term) -> Term:
    return f"({' * '.join(sorted((a[0], b[0])))})", a[1] != b[1]


def _sum(a: Term, b: Term) -> Term:
    return f"({' + '.join(sorted((_sign(a), _sign(b))))})", False


def _fused(a: Term, b: Term, c: Term) -> Term:
    return f"fma({_sign(_product(a, b))}, {_sign(c)})", False


COMPUTED: dict[str, Callable[..., Term]] = {
    "mul": _product,
    "add": _sum,
    "sub": lambda a, b: _sum(a, (b[0], not b[1])),
    "neg": lambda a: (a[0], not a[1]),
    "fma": _fused,
}


def of_machine_code(text: str, path: Path) -> dict[int, str]:
    """Return what is stored at each offset, as expressions of the loads' offsets."""
    tool = find_nvdisasm()
    if tool is None:
        pytest.skip("nvdisasm is not installed")
    path.write_bytes(compile_cubin(text, "sm_80").cubin)
    listing = subprocess.run([tool, "-c", str(path)], capture_output=True, text=True, check=True).stdout
    values: dict[str, Term] = {}
    stored = {}

    def read(operand: str) -> Term:
        value, negated = values[operand.strip("-").removesuffix(".reuse")]
        return value, negated != operand.startswith("-")

    for name, operands in re.findall(r"\b(LDG|STG|[FD](?:MUL|ADD|FMA))[.\w]* ([^;]*?) ;", listing):
        first, *rest = operands.split(", ")
        at = re.search(r"\[R\d+\.64(?:\+0x([0-9a-f]+))?\]", operands)
        offset = int(at[1] or "0", 16) if at else 0
        if name == "LDG":
            values[first] = f"x{offset}", False
        elif name == "STG":
            stored[offset] = _sign(read(rest[0]))
        else:
            values[first] = COMPUTED[name[1:].lower()](*map(read, rest))
    return stored


def of_translation(text: str, translation: Callable[[Module], Module]) -> dict[int, str]:
    """Return the same of PTX."""
    values: dict[Operand, Term] = {}
    stored = {}
    for i in translation(parse(ptx_of(text, "sm_80"))).entries[0].body:
        if not isinstance(i, Instruction) or "f" not in i.opcode.rpartition(".")[2]:
            continue
        name, (first, *rest) = i.opcode.partition(".")[0], i.operands
        if name == "ld":
            assert isinstance(rest[0], Address)
            values[first] = f"x{rest[0].offset}", False
        elif name == "st":
            assert isinstance(first, Address)
            stored[first.offset] = _sign(values[rest[0]])
        else:
            values[first] = COMPUTED[name](*(values[each] for each in rest))
    return stored


@pytest.mark.parametrize("kind", ["float", "double"])
def test_the_same_products_are_fused_as_in_machine_code(kind, tmp_path):
    text = STATEMENTS.replace("TYPE", kind)
    found = of_machine_code(text, tmp_path / "cubin")
    assert len(found) == 13
    assert of_translation(text, fused) == found
    assert of_translation(text, lambda module: module) != found
