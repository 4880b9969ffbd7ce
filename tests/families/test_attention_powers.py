"""Exponentials by polynomials in attention of warpgroups and in tensor memory: errors, rows with infinities and NaN."""

import re

import numpy as np
import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.devices.emulator import build
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.source import files
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.attention.attention import workload
from gensor_kernels.operators.types.dtypes import encode
from gensor_kernels.operators.types.dtypes import facts as dtype_facts
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.verify.problem import Problem
from gensor_tuner.verify.verify import verify
from tests.doubles.emulated_kernels import execute

from .verified import machine_code, verdict_without

FAMILY, HOPPER = FAMILIES["attention_wgmma"], lookup("sm_90")
TENSOR, BLACKWELL = FAMILIES["attention_tcgen05"], lookup("sm_100")
both = pytest.mark.parametrize("family", [FAMILY, TENSOR], ids=lambda each: each.name)
POWERS = files()["attention_powers.cuh"].read_text()
[POWER_OF] = re.findall(r"^DEVICE float power_of.*?^}\n", POWERS, re.MULTILINE | re.DOTALL)

#: Every float from 2^-7 to 1 is an argument of power_of with a normal result, from 2^-126 on; smaller arguments have
#: smaller results.
ERRORS = """
KERNEL(test, Params, 32, 0) {
    if (thread_index() > 0)
        return;
    const u32 first = 120u << 23, last = 127u << 23;
    double worst = 0, most = 0;
    for (u32 bits = first; bits <= last; ++bits) {
        const float y = bit_cast<float>(bits);
        const double error = power_of(y) / __builtin_exp2(128.0 * y - 127.0) - 1.0;
        worst = error > worst ? error : -error > worst ? -error : error == error ? worst : 1e9;
    }
    for (u32 bits = 0; bits < first; bits += 53) {
        const float power = power_of(bit_cast<float>(bits));
        most = power >= 0.0f ? power > most ? power : most : 1e9;
    }
    Vec<16> found;
    found.set<double>(0, worst), found.set<double>(1, most);
    store_global<16>(gptr<double>(params.p[0]), found, true);
    Vec<8> ends;
    ends.set<float>(0, power_of(0.0f)), ends.set<float>(1, power_of(0.9921875f));
    store_global<8>(gptr<float>(params.p[0]) + 4, ends, true);
}
"""


def errors(dtype: str, text: str = POWER_OF) -> tuple[float, float]:
    """Return the largest relative error of results from 2^-126 on, and the largest result of smaller arguments."""
    found = np.zeros(3)
    execute(f"using IN_TYPE = {dtype};\n{text}{ERRORS}", [found])
    assert tuple(found[2:].view(np.float32)) == (0.0, 1.0)
    return found[0], found[1]


@pytest.mark.parametrize(("dtype", "wanted"), [("half", 3.1e-6), ("bfloat16", 1.03e-4)])
def test_the_error_of_every_argument_is_below_that_of_its_rounding(dtype, wanted, needs_emulator):
    """The header has these bounds. A weight is then rounded to 16 bits, which may change it by 32 times as much."""
    worst, most = errors(f"{dtype}_t")
    assert wanted * 0.9 < worst < wanted
    assert 32 * worst < dtype_facts({"half": "float16"}.get(dtype, dtype)).unit_roundoff
    assert 0 < most < 2.0**-126 * 1.001


@pytest.mark.parametrize(
    ("before", "after"),
    [("0.24024038f", "0.2403f"), ("0.6931242f", "0.693f"), ("12582912.0f - 127.0f", "12582912.0f - 126.0f")],
)
def test_wrong_polynomials_are_found(before, after, needs_emulator):
    assert POWER_OF.count(before) == 1
    try:
        worst, _ = errors("half_t", POWER_OF.replace(before, after))
    except AssertionError:
        return
    assert worst > 3.1e-6


def program(problem, eighths=3, family=FAMILY, **values):
    arch, rows = (HOPPER, 64) if family is FAMILY else (BLACKWELL, 128)
    return family.starters(problem, arch)[0].replace(
        **{"block_q": rows, "block_k": 32, "stages": 3, "polynomials": eighths} | values
    )


@both
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("form", [{"causal": True}, {"mask": "float16"}, {"softcap": True, "mask": "bool"}], ids=str)
def test_kernels_with_polynomials_are_right(family, dtype, form, needs_emulator):
    problem = workload(99, head=64, dtype=dtype, **form)
    verdict = verify(candidate(family, program(problem, family=family), problem), problem, use_cache=False)
    assert verdict.outcome == "ok", verdict


#: Text of the kernels and what stands in its place.
FAULTS = {
    "powers of four": ("<< 23));", "<< 24));"),
    "twice the weight": ("0.9921875f)) {}", "1.0f)) {}"),
    "no scale": ("factor(unit * 0.0078125f)", "factor(0.0078125f)"),
    "the largest score of another measure": ("fma_(-top * unit, 0.0078125f", "fma_(-top, 0.0078125f"),
}


@both
@pytest.mark.parametrize("name", FAULTS)
def test_wrong_weights_are_caught(family, name, needs_emulator):
    problem = workload(99, head=64)
    each = candidate(family, program(problem, family=family), problem)
    assert verdict_without(*FAULTS[name], each, problem).outcome in ("wrong", "failed")


def attended(each: Candidate, problem, source: str, key: int, value: float) -> np.ndarray:
    """Return the emulated results of 48 keys, one of which has this value in its first element, for eight queries."""
    given = Problem(Case("any", problem), 7)
    q, k, v = (given.inputs[name].view() for name in "abd")
    rng = np.random.default_rng(1)
    for array in (q, k, v):
        array[...] = encode("float16", rng.standard_normal(array.shape))
    q[..., 0] = encode("float16", np.full(q.shape[:-1], 2.0))
    k.reshape(48, 64)[key, 0] = encode("float16", np.array([value]))[0]
    given.run(each, build(source), copies="late", order="forward")
    return given.out.view().astype(np.float64)


@both
@pytest.mark.parametrize(("value", "nothing"), [(np.nan, False), (np.inf, False), (-np.inf, True)], ids=str)
def test_a_key_that_is_no_number_reaches_its_rows(family, value, nothing, needs_emulator):
    """The same keys with and without polynomials; a score of minus infinity has the weight 0."""
    problem = workload(8, 48, head=64)
    results = []
    for eighths in (0, 3):
        each = candidate(family, program(problem, eighths, family), problem)
        found = [attended(each, problem, each.source(), key, value) for key in range(0, 48, 5)]
        assert all(np.isfinite(x).all() if nothing else np.isnan(x).all() for x in found), eighths
        results.append(np.array(found))
    assert not nothing or np.abs(results[0] - results[1]).max() < 2e-3


LARGEST = (np.nan, "POLYNOMIALS ? max_(a, b) : maximum_(a, b)", "maximum_(a, b)")
INFINITE = (np.inf, "POLYNOMIALS && top[0][half] == -minus_infinity()", "false")
GROWS = (np.nan, "!(largest[half] <= top[0][half] + growth)", "largest[half] > top[0][half] + growth")


@pytest.mark.parametrize(
    ("family", "value", "before", "after"),
    [*((FAMILY, *each) for each in (LARGEST, INFINITE)), *((TENSOR, *each) for each in (LARGEST, INFINITE, GROWS))],
)
def test_a_key_that_is_no_number_needs_these_lines(family, value, before, after, needs_emulator):
    problem = workload(8, 48, head=64)
    each = candidate(family, program(problem, family=family), problem)
    source = each.source()
    assert source.count(before) == 1
    found = [attended(each, problem, source.replace(before, after), key, value) for key in range(0, 48, 5)]
    assert not all(np.isnan(x).all() for x in found)


def test_polynomials_take_the_place_of_special_functions():
    """The counts that the cost has: of a thread, fragments of eight keys have four exponentials."""
    eighths = 2
    problem = workload(4096, heads=16, head=64)
    values = {"block_q": 128, "block_k": 128, "min_blocks": 1, "stages": 6}
    plain, other = (
        machine_code(FAMILY, problem, "sm_90", **values, polynomials=count)[1].hot_loop for count in (0, eighths)
    )
    polynomials = 4 * (16 * eighths // 8)
    assert plain["MUFU"] - other["MUFU"] == polynomials
    more = sum(other.values()) - sum(plain.values())
    assert 8 * polynomials - 4 <= more <= 8 * polynomials + 12


def test_polynomials_take_the_place_of_special_functions_in_tensor_memory():
    """The same of twice 16 rows, in the code for tiles that are cut and in that for others."""
    problem = workload(4096, heads=16, head=64, dtype="bfloat16")
    values = {"block_q": 256, "block_k": 64, "stages": 4}
    plain, other = (machine_code(TENSOR, problem, "sm_100", **values, polynomials=count)[1].opcodes for count in (0, 2))
    polynomials = 2 * 8 * (8 * 2 // 8)
    assert plain["MUFU"] - other["MUFU"] == polynomials
    more = sum(other.values()) - sum(plain.values())
    assert 7 * polynomials - 20 <= more <= 7 * polynomials + 60


def test_a_measure_that_polynomials_outgrow_is_found(monkeypatch, needs_emulator):
    """Polynomials end at 2, exponentials at 256."""
    problem = workload(99, head=64)
    each = candidate(TENSOR, program(problem, family=TENSOR), problem)
    source = each.source()
    assert source.count("POLYNOMIALS ? 1.0f : 8.0f") == 1
    monkeypatch.setattr(Candidate, "source", lambda self: source.replace("POLYNOMIALS ? 1.0f", "POLYNOMIALS ? 8.0f"))
    assert verify(each, problem, use_cache=False).outcome == "wrong"


def test_three_warpgroups_take_steps_of_128_keys_without_spills():
    """Heads of 64 elements, as in FlashAttention-3; windows need more registers."""
    for form, legal in (({"causal": True}, True), ({"window": (99, None)}, False)):
        problem = workload(4096, heads=16, head=64, **form)
        space = FamilySpace(FAMILY, problem, HOPPER)
        wanted = program(problem, 2, block_q=192, block_k=128, stages=6, min_blocks=1)
        assert space.legal(space.point(wanted)[None])[0] == legal
        if legal:
            binary = compile_cubin(candidate(FAMILY, wanted, problem).source(), HOPPER.target)
            assert binary.error is None and binary.spill_bytes == 0


def test_soft_caps_gain_most():
    """They have two special functions more per score: 8 % at the least, where plain heads of 128 gain nothing."""
    for form, least in (({"softcap": True, "window": (None, None)}, 1.05), ({}, 0.99)):
        problem = workload(4096, heads=16, head=128, causal=True, **form)
        space = FamilySpace(FAMILY, problem, lookup("h100-sxm"))
        points = [program(problem, count, block_q=128, block_k=128, stages=6) for count in (0, 3)]
        before, after = space.potential(np.stack([space.point(each) for each in points]))
        assert before / after > least
