"""linear with quantised weights: declaration, kernels, groups, shapes files; tests/public_cases draws calls."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.build.nvrtc import compile_many
from gensor_kernels.build.source import bind, flatten
from gensor_kernels.dispatch.functions.quantised import QUANTISED_LINEAR, check
from gensor_kernels.dispatch.selection.load import class_workload
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import bound_us, seconds
from gensor_kernels.operators import operator
from gensor_kernels.operators.products import matmul, quantised
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.build.pool import candidate
from gensor_tuner.shapes.reader import read_shapes
from tests.campaign_size import sample
from tests.doubles.device import FakeDevice
from tests.programs.verified import is_right

FAMILY = FAMILIES["contraction_mma"]
#: bits, elements per scale (0: a row), zeros, dtype
KINDS = [
    (4, 128, False, "float16"),
    (4, 32, True, "bfloat16"),
    (8, 64, True, "float16"),
    (8, 0, True, "bfloat16"),
    (4, 0, False, "float16"),
]


def arrays(rng, bits, group, zeros, out, k, dtype=np.float16):
    """w, scales and zeros of a layer."""
    shape = (out,) if not group else (out, -(-k // group))
    w = rng.integers(0, 256, (out, k * bits // 8)).astype(np.uint8)
    scales = (rng.uniform(0.5, 1.5, shape) / 16).astype(dtype)
    zero = rng.integers(0, 16, shape).astype(np.uint8) if bits == 4 else rng.integers(-99, 99, shape).astype(np.int8)
    return (w if bits == 4 else w.view(np.int8)), scales, zero if zeros else None


def dequantise(w, scales, zeros, group):
    """The weights in float64, written out element by element of a row."""
    out = np.empty((w.shape[0], w.shape[1] * (2 if w.dtype == np.uint8 else 1)))
    for j in range(out.shape[1]):
        number = w[:, j] if w.dtype == np.int8 else (w[:, j // 2] % 16 if j % 2 == 0 else w[:, j // 2] // 16)
        column = (slice(None), j // group) if scales.ndim == 2 else slice(None)
        zero = zeros[column].astype(np.float64) if zeros is not None else 8.0 if w.dtype == np.uint8 else 0.0
        out[:, j] = (number.astype(np.float64) - zero) * scales[column].astype(np.float64)
    return out


def test_a_class_has_the_group_of_its_kernels():
    """A kernel whose rows cannot be read is built again from its Program and its class."""
    for group in quantised.GROUPS:
        w = quantised.workload(16, 64, 256, bits=4, group=group)
        program = FAMILY.starters(w, lookup("sm_87"))[0]
        constants = candidate(FAMILY, program, class_workload(w.class_key())).constants
        assert constants == candidate(FAMILY, program, w).constants


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_declaration(kind):
    bits, group, zeros, _ = kind
    rng = np.random.default_rng(0)
    w, scales, zero = arrays(rng, bits, group, zeros, 5, 160)
    a = rng.standard_normal((3, 160))
    declared = operator(quantised.name_of(bits, zeros))
    two = {"d": scales.reshape(5, -1)} | ({"e": zero.reshape(5, -1)} if zeros else {})
    sizes = {"m": 3, "n": 5, "k": 160, "group": group}
    found = declared.reference({"a": a, "b": w, **two}, sizes)
    np.testing.assert_allclose(found, a @ dequantise(w, scales, zero, group).T, rtol=1e-12, atol=1e-12)
    assert declared.names == ("a", "b", "d", *("e" * zeros), "c")


def small(wanted, copy):
    tile = {"block_m": 32, "block_n": 64, "block_k": 64, "warp_m": 16, "warp_n": 32}
    program = FAMILY.starters(matmul.workload(256, 256, 256, trans_b=True), lookup("sm_87"))[0]
    return program.replace(**tile, copy=copy, stages=3 if copy else 2, split_k=2)


@pytest.mark.parametrize(
    ("kind", "copy"), sample([(KINDS[0], 1), (KINDS[1], 1), (KINDS[1], 0), (KINDS[2], 1), (KINDS[3], 0)], 2), ids=str
)
def test_programs_are_verified(kind, copy):
    bits, group, zeros, dtype = kind
    wanted = quantised.workload(64, 256, 4096, bits=bits, group=group, zeros=zeros, dtype=dtype)
    verdict = is_right(FAMILY, small(wanted, copy), wanted)
    assert verdict.counters["bank_conflicts"] == 0 or (bits, copy) == (4, 0)


@pytest.mark.parametrize("arch", sample(["sm_87", "sm_90"], 1))
def test_a_usual_program_does_not_spill(arch):
    wanted, target = quantised.workload(16, 4096, 4096), lookup(arch)
    program = FAMILY.starters(wanted, target)[1]
    text = bind(flatten(FAMILY.source), FAMILY.constants(program, wanted))
    (binary,) = compile_many([(text, target.target)], 1)
    assert binary.error is None and binary.spill_bytes == 0, binary.error


@pytest.mark.parametrize(
    ("k", "count", "group", "size"),
    [(96, 2, None, 48), (192, 2, None, 96), (96, 3, None, 32), (96, 2, 64, 64), (100, 4, 32, 32), (10, 2, None, 5)],
)
def test_the_size_of_a_group_follows_by_exact_division_or_is_given(k, count, group, size):
    x, w = np.ones((1, k), np.float16), np.ones((1, k), np.int8)
    scales = np.array([[1, 10, 3, 5][:count]], np.float16)
    wanted = sum(int(scales[0, place // size]) for place in range(k))
    parameters = check(x, w, scales, None, group)
    assert QUANTISED_LINEAR.library(FakeDevice(), (x, w, scales, None), parameters, None) == wanted
    with gensor_kernels.emulated("sm_87"):
        if size in quantised.GROUPS:
            assert gensor_kernels.linear(x, w, scales=scales, group=group) == wanted
        else:
            with pytest.raises(gensor_kernels.UnsupportedError, match="groups"):
                gensor_kernels.linear(x, w, scales=scales, group=group)


def test_arguments_that_do_not_fit():
    x, w, s = np.zeros((4, 64), np.float16), np.zeros((8, 64), np.int8), np.ones((8, 2), np.float16)
    linear = gensor_kernels.linear
    with gensor_kernels.emulated("sm_87"):
        for error, words, call in (
            (ValueError, "zeros and group belong to scales", lambda: linear(x, w, group=32)),
            (ValueError, "scales are \\(8,\\) or", lambda: linear(x, w, scales=s[:7])),
            (ValueError, "2 scales in a row do not belong to groups of 64", lambda: linear(x, w, scales=s, group=64)),
            (ValueError, "64 weights .* 3 equal groups.* group=", lambda: linear(x, w, scales=np.ones((8, 3), "f2"))),
            (TypeError, "group must be an integer, not 32.0", lambda: linear(x, w, scales=s, group=32.0)),
            (ValueError, "x is \\(..., 128\\)", lambda: linear(x, w.view(np.uint8), scales=s)),
            (TypeError, "int8 or \\(out, in / 2\\) uint8", lambda: linear(x, w.astype(np.int16), scales=s)),
            (ValueError, "zeros of shape", lambda: linear(x, w, scales=s, zeros=w)),
            (TypeError, "zeros are of the weights' kind", lambda: linear(x, w, scales=s, zeros=s)),
        ):
            with pytest.raises(error, match=words):
                call()
        with pytest.raises(gensor_kernels.UnsupportedError, match="float16 or bfloat16, got float32"):
            linear(x.astype(np.float32), w, scales=s)


def predict_us(wanted):
    """Microseconds of the best default Program."""
    arch = lookup("sm_87")
    found = []
    for program in FAMILY.starters(wanted, arch):
        space = FamilySpace(FAMILY, wanted, arch)
        terms = FAMILY.terms(space.columns(space.point(program)[None]), wanted, arch)
        found.append(float(seconds(terms, arch)[0]) * 1e6)
    return min(found)


def test_narrow_weights_are_predicted_to_be_faster(m=16):
    full = matmul.workload(m, 8192, 8192, trans_b=True)
    four = quantised.workload(m, 8192, 8192, bits=4, group=128)
    eight = quantised.workload(m, 8192, 8192, bits=8, group=0)
    arch = lookup("sm_87")
    assert bound_us(four, arch) < 0.27 * bound_us(full, arch) and bound_us(eight, arch) < 0.51 * bound_us(full, arch)
    assert predict_us(four) < predict_us(eight) < predict_us(full)


def test_shapes_files(tmp_path):
    path = tmp_path / "shapes.csv"
    path.write_text(
        "op,m,n,k,dtype,dtype_b,group,zeros,trans_b\n"
        "matmul,1,64,128,fp16,int4,32,1,1\nmatmul,1,64,128,bf16,int8,0,,1\nmatmul,1,64,128,fp16,int4,48,,1\n"
        "matmul,1,64,128,fp16,int4,64,,0\nmatmul,1,64,128,fp32,int4,64,,1\n"
    )
    four, eight, group, turned, wide = list(read_shapes(path))
    assert four.workload == quantised.workload(1, 64, 128, bits=4, group=32, zeros=True)
    assert eight.workload == quantised.workload(1, 64, 128, bits=8, group=0, dtype="bfloat16")
    assert "'48' is not one of 0, 32, 64, 128" in str(group.error)
    assert "column 'trans_b'" in str(turned.error) and "float32" in wide.unsupported


def test_recorded_calls_are_read_by_the_tuner(tmp_path):
    path = tmp_path / "calls.csv"
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 128)).astype(np.float16)
    w, scales, zeros = arrays(rng, 4, 64, True, 24, 128)
    with gensor_kernels.emulated("sm_87"), gensor_kernels.record(path):
        gensor_kernels.linear(x, w, scales=scales, zeros=zeros)
        gensor_kernels.matmul(x, w.T[:, :16].repeat(2, 0), dtype_b="float8_e5m2")
    found = {row.workload for row in read_shapes(path)}
    four = quantised.workload(4, 24, 128, bits=4, group=64, zeros=True)
    assert four in found and len(found) == 2
    (other,) = found - {four}
    assert other.dtype == {"a": "float16", "b": "float8_e5m2", "c": "float16"}


def test_an_epilogue_in_order():
    """Operations apply in the order of the list, after a prologue as well; a list and `bias` together have no order."""
    rng = np.random.default_rng(0)
    w, scales, _ = arrays(rng, 8, 0, False, 32, 64)
    x, term, factor = (rng.standard_normal(shape).astype(np.float16) for shape in ((4, 64), (4, 32), (32,)))
    steps = [("scale", 0.5), ("mul", factor), ("add", term), "relu"]
    wide = x.astype(np.float64) @ dequantise(w, scales, None, 0).T
    expected = np.maximum(wide * 0.5 * factor.astype(np.float64) + term, 0)
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.linear(x, w, scales=scales, epilogue=steps)
        np.testing.assert_allclose(found, expected, rtol=4e-3, atol=4e-3 * np.abs(wide).max())
        plain = gensor_kernels.linear(x, term[0, None].repeat(64, 0).T[:, :64], epilogue=["relu"], prologue=["relu"])
        wide = np.maximum(x, 0).astype(np.float64) @ term[0].astype(np.float64)[:, None].repeat(64, 1).T
        np.testing.assert_allclose(plain, np.maximum(wide, 0), rtol=4e-3, atol=4e-3 * np.abs(wide).max())
        with pytest.raises(ValueError, match="epilogue= gives the whole order"):
            gensor_kernels.linear(x, w, term, scales=scales, epilogue=steps)
