"""Products and sums that ptxas makes one instruction: the translation fuses the same as the machine code."""

import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.resources import find_nvdisasm
from tests.ptx.compile import ptx_of
from tests.ptx.translation.fusion import fused
from tests.ptx.translation.parse import Immediate, Instruction, Module, parse

#: Each product has a constant of its own, which tells its instruction.
STATEMENTS = """
struct Params { TYPE *to; const TYPE *from; };
extern "C" __global__ void test(Params params) {
    TYPE *const to = params.to, x = params.from[0], y = params.from[1], z = params.from[2], one = params.from[3];
    to[0] = x * 3 + y * 5;
    to[1] = x * 7 - y * 9;
    to[2] = z - x * 11;
    to[3] = -(x * 13) - y;
    const TYPE stored = x * 15, added = x * 17, twice = x * 19, later = x * 21;
    to[4] = stored, to[5] = stored + y;
    to[6] = added + y, to[7] = added - z, to[8] = z - added;
    to[9] = twice + twice;
    to[10] = x * one - y * 23;
    to[11] = x * one + 25 * y - z;
    __syncthreads();
    to[12] = later + y;
}
"""


OPERATIONS = {"mul": "MUL", "add": "ADD", "sub": "ADD", "fma": "FMA"}


def machine_code(text: str, path: Path) -> Counter[tuple[str, float]]:
    """Return how often each operation has each constant (its size; 0 for none) in machine code."""
    tool = find_nvdisasm()
    if tool is None:
        pytest.skip("nvdisasm is not installed")
    path.write_bytes(compile_cubin(text, "sm_80").cubin)
    listing = subprocess.run([tool, "-c", str(path)], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"\b[FD](MUL|ADD|FMA) ([^;]*);", listing)
    constants = ([each for each in operands.split(", ") if "R" not in each] for _, operands in found)
    return Counter((name, abs(float((*each, 0)[0]))) for (name, _), each in zip(found, constants, strict=True))


def translated(text: str, translation: Callable[[Module], Module]) -> Counter[tuple[str, float]]:
    """Return the same of PTX, without products that nothing reads any more."""
    body = [i for i in translation(parse(ptx_of(text, "sm_80"))).entries[0].body if isinstance(i, Instruction)]
    read = {operand for i in body for operand in (i.operands if i.opcode.startswith("st") else i.operands[1:])}
    return Counter(
        (OPERATIONS[name], next((_size(each) for each in i.operands if isinstance(each, Immediate)), 0.0))
        for i in body
        if (name := i.opcode.partition(".")[0]) in OPERATIONS and i.opcode[-3:-2] == "f" and i.operands[0] in read
    )


def _size(constant: Immediate) -> float:
    kind = np.float32 if constant.bits == 32 else np.float64
    return abs(float(np.array(constant.value, f"u{constant.bits // 8}").view(kind)))


@pytest.mark.parametrize("kind", ["float", "double"])
def test_the_same_products_are_fused_as_in_machine_code(kind, tmp_path):
    text = STATEMENTS.replace("TYPE", kind)
    found = machine_code(text, tmp_path / "cubin")
    assert translated(text, fused) == found
    assert translated(text, lambda module: module) != found
