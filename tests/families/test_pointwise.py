"""The pointwise family: every operation is correct on the emulator, and faults in its source are found."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.dispatch.fusion.fused import compute_program
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.expression import program as programs
from gensor_kernels.operators.expression.program import ARITY, TYPES, Step, make
from gensor_kernels.operators.pointwise.views import workload
from gensor_kernels.operators.types.dtypes import array_dtype
from gensor_tuner.build.pool import candidate
from tests.campaign_size import sample
from tests.mutator.programs.pointwise import pointwise_configurations

from .verified import is_right, verdict_without

FAMILY, ARCH = FAMILIES["pointwise"], lookup("sm_87")


def single(name: str, code: str, source: str = "") -> str | None:
    """The program of one operation on values of a type, or None where kernels have none."""
    inputs = ("b1", code, code) if name == "where" else (source or code,) * ARITY[name]
    step = Step(name, code, tuple(range(len(inputs))))
    try:
        programs.check(step, inputs)
    except programs.UnsupportedError:
        return None
    return make(inputs, [step], len(inputs)).text


SINGLE = [single(name, code) for name in ARITY for code in TYPES if name != "cast"]
CASTS = [single("cast", code, source) for code in TYPES for source in TYPES if code != source]


@pytest.mark.parametrize("text", sample([each for each in (*SINGLE, *CASTS) if each], 12))
def test_an_operation_is_right(text):
    given = workload(text, [(512,)] * len(programs.parse(text).inputs))
    program = FAMILY.starters(given, ARCH)[0].replace(threads=64, items=2)
    is_right(FAMILY, program, given)


#: The program that shows a fault, what stands in the source, and in its place.
FAULTS = {
    "a thread past the end": ("pointwise", "within(vector, ", "within(vector - 1, "),
    "vectors of one thread": (
        "pointwise",
        "(block_index() * ITEMS + item) * THREADS",
        "block_index() * ITEMS * THREADS",
    ),
    "neighbours": ("pointwise", "form_of<X> == ADJACENT ? element : 0", "0"),
    "the next row": ("pointwise, four axes", "offset += spot.k * place.k;", "offset += spot.k * place.column;"),
    "the outermost axis": ("pointwise, four axes", "offset += spot.i * place.i;", "offset += spot.i * place.j;"),
    "a fourth input": ("pointwise, four axes", "AT = 3 * (OPERAND - 3);", "AT = 0 * OPERAND + 3;"),
    "strides of a fourth input": ("pointwise, four axes", "(i32)inner,", "(i32)outer,"),
    "an element apart": ("pointwise, apart", "spot.column * place.column", "spot.column"),
    "the second result's place": ("pointwise, two results", "number * params.c_m", "0"),
    "another result": ("pointwise, two results", "values.of<result(NUMBER)>()", "values.of<result(0)>()"),
    "a number beyond 8 bits": ("eight bits", "found < BEYOND ? found : BEYOND", "found"),
    "a rounded cast": ("cast", "return to_float(Narrow<Stored>::from(x));", "return x;"),
    "the sign of a rest": ("pointwise, integers", "return down ? rest + b : rest;", "return rest;"),
    "a divisor of zero": ("pointwise, integers", "return b == T(0) || b == T(-1) ? T(0) :", "return b == T(0) ? a :"),
    "a maximum that drops NaN": ("maximum", "max_(a, b))", "a > b ? a : b)"),
    "another argument": ("maximum", "B = STEP.argument[1]", "B = STEP.argument[0]"),
    "bits of a constant": ("constant", "(T)bit_cast<double>((u64)STEP.bits)", "(T)(double)STEP.bits"),
    "a block with NaN": ("quantise, mxfp8", "exponent == 255 ? 255u :", ""),
    "NaN in 4 bits": ("quantise, nvfp4", "return WIDE == 4 ? 0u : 0x7fu;", "return 7u;"),
    "a number beyond the largest": ("quantise, mxfp8", "size = minimum(size, bit_cast<u32>((float)MOST));", ""),
    "a tie": ("quantise, mxfp8", "(size >> SHIFT & 1)", "1"),
    "a subnormal element": ("quantise, nvfp4", "if (size < (u32)(127 + E) << 23)", "if (false)"),
    "a sign": ("quantise, nvfp4", "sign = bits >> 31 << (WIDE - 1)", "sign = 0"),
    "a scale of zero": ("quantise, nvfp4", "if (factor == 0.0f)", "if (false)"),
    "the tensor's scale": ("quantise, nvfp4", "scale_value(bits) * tensor", "scale_value(bits)"),
    "the least scale": ("quantise, mxfp8", "exponent > EMAX ? exponent - EMAX : 0u", "exponent - EMAX"),
    "the second block of a thread": ("quantise, nvfp4", "* ITEMS + item)", "* ITEMS)"),
    "a block past the end": ("quantise, mxfp8", "within(blocks[item].number, ", "within(blocks[item].number - 1, "),
    "a wrapped sum": ("bytes", "result = (T)(typename Coded<CODE>::Stored)found;", "result = found;"),
}
PROGRAMS = {
    "cast": "in_f4__cast_f2_0__cast_f4_1__sub_f4_0_2__out_3",
    "eight bits": "in_e4_e5__cast_e4_1__div_e4_0_2__out_3",
    "maximum": "in_f4_f4__max_f4_0_1__out_2",
    "constant": "in_f4__const_f4_3ff8000000000000__mul_f4_0_1__out_2",
    "bytes": "in_u1_u1__add_u1_0_1__cast_f4_2__out_3",
}


def configured(name):
    if name in PROGRAMS:
        given = workload(PROGRAMS[name], [(100,)] * len(programs.parse(PROGRAMS[name]).inputs))
        return candidate(FAMILY, FAMILY.starters(given, ARCH)[0].replace(threads=32), given), given
    (each,) = [each for each in pointwise_configurations() if each.name == name]
    return each.candidate, each.workload


@pytest.mark.parametrize("fault", sample(sorted(FAULTS), 6))
def test_a_planted_fault_is_found(fault):
    name, before, after = FAULTS[fault]
    found = verdict_without(before, after, *configured(name))
    assert found.outcome in ("wrong", "failed"), found


@pytest.mark.parametrize("name", [*PROGRAMS, *(each.name for each in pointwise_configurations())])
def test_the_program_of_a_fault_is_right_without_it(name):
    each, given = configured(name)
    is_right(each.family, each.program, given)


@pytest.mark.parametrize("code", ["e4", "e5"])
def test_floats_of_8_bits_are_those_of_ml_dtypes(code):
    """All of them widened, and each neighbourhood of a float16 rounded."""
    dtype, every = array_dtype(TYPES[code]), np.arange(2**16).astype(np.uint16)
    near = every.view(np.float16).astype(np.float32).view(np.uint32)
    given = np.concatenate([near - 1, near, near + 1]).view(np.float32)
    with gensor_kernels.emulated("sm_87"), np.errstate(all="ignore"):
        found, wanted = compute_program(single("cast", code, "f4"), given), given.astype(dtype)
        numbers = np.isfinite(wanted.astype(np.float32))
        assert (found.view(np.uint8) == wanted.view(np.uint8))[numbers].all()
        assert np.array_equal(found.astype(np.float32), wanted.astype(np.float32), equal_nan=True)
        stored = every[:256].astype(np.uint8).view(dtype)
        found = compute_program(single("cast", "f4", code), stored)
        assert np.array_equal(found, stored.astype(np.float32), equal_nan=True)


def test_a_long_program_compiles_for_every_generation_without_spills():
    """It has as many inputs and steps as any, each of which needs the one before."""
    steps = [Step("mul", "f4", (0, 1))]
    for count in range(programs.MAX_STEPS - 1):
        steps.append(Step(("add", "max", "sub")[count % 3], "f4", (8 + count, count % 8)))
    given = workload(make(("f4",) * 8, steps, 8 + len(steps) - 1).text, [(4096,)] * 8)
    for arch in map(lookup, ("sm_75", "sm_90", "sm_120")):
        binary = compile_cubin(candidate(FAMILY, FAMILY.starters(given, arch)[0], given).source(), arch.target)
        assert binary.error is None and binary.spill_bytes == binary.stack_bytes == 0, binary.log
