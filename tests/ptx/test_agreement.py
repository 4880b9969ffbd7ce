"""Small Programs compiled by NVRTC and executed at the verifier's cases: all results are correct.

All of them, and the kernels of the shipped databases, are executed by `python -m tests.ptx`.
"""

from dataclasses import replace

import numpy as np
import pytest

from gensor_kernels.devices.emulator.build import has_fma
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.rows import views
from gensor_tuner.build.pool import candidate
from tests.campaign_size import sample
from tests.mutator.programs import Configuration, configurations
from tests.ptx.agreement import NOTHING, Replaced, agree, equal_bits
from tests.ptx.causes import NONE, causes
from tests.ptx.stored import Item, small, spread, stored

pytestmark = pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++


@pytest.mark.parametrize("each", sample(configurations(), 3, 7), ids=lambda each: f"{each.group}: {each.name}")
def test_compiled_code_is_right(each: Configuration):
    found = agree(each.candidate, each.workload, lookup(each.arch).target, chosen=lambda cases: sample(cases, 2))
    assert found.outcome == "ok", found.detail
    assert found.runs >= 2
    if has_fma():  # all bits are equal but for the causes that are known
        elements, equal = found.causes.get(NONE, (0, 0))
        assert equal == elements


@pytest.mark.parametrize("name", ["staged argmax", "staged softmax"])
def test_staged_rows_are_right_as_compiled(name):
    each = next(each for each in configurations() if each.name == name)
    found = agree(each.candidate, each.workload, lookup(each.arch).target)
    assert found.outcome == "ok", found.detail


def test_bits_are_compared_with_the_emulator():
    each = next(each for each in configurations() if each.group == "gemv" and "int8" in str(each.workload.dtypes))
    found = agree(each.candidate, each.workload, lookup(each.arch).target, chosen=lambda cases: cases[:1])
    assert found.outcome == "ok" and found.elements == found.equal > 0


#: small Programs, what is replaced where their bits differ, and where the cause is taken away
CAUSES = {
    "mma cp.async: scalar": (NOTHING, Replaced(plain=True, truncated=True)),
    "simt: prologue in front": (NOTHING, Replaced(plain=True)),
}
#: small Programs with a product and then a sum in their epilogue or prologue, complex or compiled in: no compiler
#: may fuse them
APART = ("simt: complex, split", "rows: layernorm")


@pytest.mark.parametrize("name", sample(tuple(CAUSES), 1))
def test_bits_are_equal_without_the_causes(name):
    if not has_fma():
        pytest.skip("the emulator fuses nothing on this CPU")
    each = next(each for each in configurations() if f"{each.group}: {each.name}" == name)
    target = lookup(each.arch).target
    differing, equal = (
        agree(each.candidate, each.workload, target, replaced=replaced, chosen=lambda cases: cases[:1])
        for replaced in CAUSES[name]
    )
    assert differing.outcome == equal.outcome == "ok"
    assert 0 < differing.equal < differing.elements == equal.elements == equal.equal


def test_compilers_choose_which_of_two_products_is_fused():
    """A sum of squares: bits of a few rows differ, and none where NVRTC, ptxas and g++ fuse nothing."""
    if not has_fma():
        pytest.skip("the emulator fuses nothing on this CPU")
    wanted = views.workload("rmsnorm", (64, 256), (1,), "float32")
    space = Space(wanted, lookup("sm_89")).family("rows")
    chosen = {"form": 1, "threads_k": 8, "threads_m": 4, "vector": 4, "items": 1, "keep": 2, "online": 1}
    program = space.program(space.start()).replace(**chosen)
    each = candidate(FAMILIES["rows"], program, wanted)
    found, apart = (
        agree(each, wanted, "sm_89", replaced=Replaced(plain=True, unfused=unfused)) for unfused in (False, True)
    )
    assert 0 < found.equal < found.elements == apart.elements == apart.equal


@pytest.mark.parametrize("name", sample(APART, 1))
def test_products_of_an_epilogue_are_rounded_by_themselves(name):
    if not has_fma():
        pytest.skip("the emulator fuses nothing on this CPU")
    each = next(each for each in configurations() if f"{each.group}: {each.name}" == name)
    found = agree(each.candidate, each.workload, lookup(each.arch).target, chosen=lambda cases: cases[:1])
    assert found.outcome == "ok" and found.elements == found.equal > 0


def test_cases_have_their_causes():
    product = matmul.workload(64, 64, 64, dtype="float16")
    tensor = ["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"]
    assert causes(product, ["fma.rn.f32"]) == NONE
    assert causes(replace(product, epilogue=("bias", "silu")), ["fma.rn.f32"]) == "functions"
    assert causes(product, tensor) == "tensor sums"
    assert causes(replace(product, epilogue=("gelu",)), tensor) == "functions and tensor sums"
    whole = ["mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"]
    assert causes(product, whole) == NONE
    complex_product = matmul.workload(64, 64, 64, dtype="complex64")
    assert causes(replace(complex_product, epilogue=("scale", "bias")), []) == NONE
    gated = {each.workload.operator: each.workload for each in configurations()}
    assert [causes(gated[name], []) for name in ("bias_swiglu", "reglu")] == ["functions", NONE]


def test_bits_are_equal_but_for_the_payload_of_nan():
    nan = np.array([0x7FC00000, 0xFF812345, 0x80000000, 1], np.uint32).view(np.float32)
    other = np.array([0x7FFFFFFF, 0x7FC00000, 0x00000000, 1], np.uint32).view(np.float32)
    assert equal_bits(nan, other, "float32").tolist() == [True, True, False, True]
    half, other_half = np.array([0x7FC0, 0x3F80], np.uint16), np.array([0xFFFF, 0x3F81], np.uint16)
    assert equal_bits(half, other_half, "bfloat16").tolist() == [True, False]
    pair, other_pair = np.array([1 + 2j, 1 + 0j]), np.array([1 + 2j, complex(1, -0.0)])
    assert equal_bits(pair, other_pair, "complex128").tolist() == [True, False]


@pytest.mark.nightly
def test_a_spread_soon_meets_every_family_and_dtype():
    items = list(small("sm_87"))
    kinds = {(each.candidate.family.name, each.workload.dtypes) for each in items}
    first = spread(items, 3)[: len(kinds)]
    assert {(each.candidate.family.name, each.workload.dtypes) for each in first} == kinds


@pytest.mark.nightly
def test_stored_kernels_are_named_by_source_constants_and_target():
    items: list[Item] = list(stored("sm_87", "gemv"))
    assert len({each.name for each in items}) == len(items) > 5
    assert {each.target for each in items} == {"sm_87"}
    assert all(each.source.startswith("#define") for each in items)
