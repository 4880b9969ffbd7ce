"""The strip family beside its contract (test_contract.py): bank conflicts, public calls, masks, what it serves."""

from pathlib import Path
from unittest.mock import patch

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gensor_kernels
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.programs.contraction.strip import shape as shapes
from gensor_kernels.programs.registry import FAMILIES
from gensor_tuner.build.pool import candidate
from gensor_tuner.strategies.request import Request, search
from gensor_tuner.verify.verify import verify
from tests.doubles.stored import isolate
from tests.programs.lattices import random_legal
from tests.programs.verified import verdict_without
from tests.programs.workloads import contract, space
from tests.programs.workloads.contraction_strip import FIRST, SPEECH, stem, strip_configurations

STRIP = FAMILIES["contraction_strip"]
SERVED = contract(STRIP.name).served
#: in place of the databases that ship, whose kernels would serve
NOTHING = Path(__file__).parent / "no-packaged-databases"


@pytest.mark.parametrize("index", range(len(SERVED)))
def test_cases_have_the_lines_and_octets_of_their_program(index):
    lattice = space(STRIP.name, index)
    for point in random_legal(lattice, 20, seed=3):
        program = lattice.program(point)
        for case in STRIP.cases(program, lattice.workload, ()):
            assert STRIP.serves(case.workload, lattice.arch) is None, f"{case.name} of {program.to_json()}"
            call = shapes.call_of(case.workload)
            own = {"lines": call.lines, "octets": call.octets, "planes": call.planes}
            assert own == {name: program[name] for name in own}, f"{case.name} of {program.to_json()}"


def test_fragments_are_read_without_bank_conflicts():
    """Outputs 6 and 2 elements apart, and whole stores of them: docs of the kernel say so."""
    for index in (0, 2):
        arch, workload = SERVED[index]
        verdict = verify(candidate(STRIP, STRIP.starters(workload, lookup(arch))[0], workload), workload)
        assert verdict.counters["bank_conflicts"] == 0


# ---- through the public function


def direct(x, w, stride, pads):
    """A convolution of NCHW operands in float64, tap by tap; pads are (top, bottom), (left, right)."""
    x, w = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *pads)), w.astype(np.float64)
    r, s = w.shape[2:]
    high, wide = ((x.shape[2 + i] - w.shape[2 + i]) // stride[i] + 1 for i in range(2))
    total = np.zeros((x.shape[0], w.shape[0], high, wide))
    with np.errstate(invalid="ignore"):
        for i in range(r):
            for j in range(s):
                seen = x[:, :, i : i + stride[0] * high : stride[0], j : j + stride[1] * wide : stride[1]]
                for c in range(x.shape[1]):
                    total += seen[:, None, c][:, :, :high, :wide] * w[None, :, c, i, j, None, None]
    return total


@st.composite
def calls(draw):
    """x, w (NCHW), stride, padding, layout, gap behind rows of the image, elements in front of it, specials."""
    r, s, c = draw(st.sampled_from([(3, 3, 3), (7, 7, 3), (2, 5, 2), (3, 9, 1), (5, 4, 1)]))
    last = draw(st.booleans())
    stride = draw(st.integers(1, 3)), draw(st.sampled_from([2, 4]))
    pads = tuple(tuple(draw(st.integers(0, 4)) for _ in range(2)) for _ in range(2))
    h, w = draw(st.integers(8, 20)), draw(st.sampled_from([16, 24, 20, 18, 17, 40, 64]))
    dtype = draw(st.sampled_from(["float16", "bfloat16"]))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = rng.integers(-1, 2, (draw(st.integers(1, 3)), c, h, w)).astype(kind)
    weights = rng.integers(-1, 2, (draw(st.sampled_from([3, 8, 17, 33, 64])), c, r, s)).astype(kind)
    for special in draw(st.lists(st.sampled_from([np.nan, np.inf, -np.inf]), max_size=3)):
        x[tuple(rng.integers(0, x.shape))] = special
    return x, weights, stride, pads, last, draw(st.sampled_from([0, 0, 1, 2, 4, 8])), draw(st.sampled_from([0, 1, 4]))


def laid_out(x, gap, front):
    """The same elements, `gap` of them behind each line of the innermost two (one) axes and `front` before the first:
    rows of the image stay without gaps."""
    lines, row = x.shape[:2], int(np.prod(x.shape[2:]))
    raw = np.full(front + lines[0] * lines[1] * (row + gap), np.nan, x.dtype)
    lead = -raw.ctypes.data % 16 // x.itemsize
    raw = np.full(len(raw) + 16, np.nan, x.dtype)[lead + front :]
    size = x.itemsize
    inner = [int(np.prod(x.shape[i + 1 :])) * size for i in range(2, x.ndim)]
    strides = (lines[1] * (row + gap) * size, (row + gap) * size, *inner)
    view = np.lib.stride_tricks.as_strided(raw, x.shape, strides)
    view[...] = x
    return view


@settings(max_examples=60, deadline=None)
@given(calls())
def test_calls_are_computed_as_tap_by_tap(call):
    """Integers, whose sums are exact in both types; what is not finite reaches the outputs that read it, and no
    others."""
    x, w, stride, pads, last, gap, front = call
    wanted = direct(x, w, stride, pads)
    if last:
        x, w, wanted = (np.ascontiguousarray(each.transpose(0, 2, 3, 1)) for each in (x, w, wanted))
    x = laid_out(x, gap, front)
    options = {"stride": stride, "padding": pads, "layout": "NHWC" if last else "NCHW"}
    alone = patch("gensor_kernels.programs.space.FAMILIES", {STRIP.name: STRIP})
    with pytest.MonkeyPatch.context() as patched, alone:
        isolate(patched, NOTHING)  # a Runtime of its own, too: they are named by databases
        computed_by_strip(x, w, wanted, options)


def computed_by_strip(x, w, wanted, options):
    with gensor_kernels.emulated("sm_87"):
        told = gensor_kernels.explain(gensor_kernels.conv2d, x, w, **options)
        # A filter of a single channel is a depthwise one.
        assert told.family == STRIP.name or '"operator":"depthwise_conv2d"' in told.workload
        found = gensor_kernels.conv2d(x, w, **options)
    np.testing.assert_array_equal(found.astype(np.float64), wanted)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("gap", [0, 8, 4, 2, 1])
def test_lines_at_any_distance_are_served(layout, gap):
    """Rows of the image that begin at multiples of 16, 8, 4 and 2 bytes."""
    rng = np.random.default_rng(gap)
    x, w = rng.integers(-2, 3, (2, 3, 40, 64)), rng.integers(-2, 3, (64, 3, 7, 7))
    x, w = x.astype(np.float16), w.astype(np.float16)
    x[0, 1, 10, 21], x[1, 2, 5, 63], x[1, 0, 39, 0] = np.nan, np.inf, -np.inf
    wanted = direct(x, w, (2, 2), ((3, 3), (3, 3)))
    if layout == "NHWC":
        x, w, wanted = (np.ascontiguousarray(each.transpose(0, 2, 3, 1)) for each in (x, w, wanted))
    x = laid_out(x, gap, 0)
    options = {"stride": 2, "padding": 3, "layout": layout}
    with gensor_kernels.emulated("sm_87"):
        assert gensor_kernels.explain(gensor_kernels.conv2d, x, w, **options).family == "contraction_strip"
        np.testing.assert_array_equal(gensor_kernels.conv2d(x, w, **options).astype(np.float64), wanted)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_pixels_with_gaps_are_left_to_others(layout):
    rng = np.random.default_rng(1)
    x, w = rng.integers(-2, 3, (2, 3, 20, 128)), rng.integers(-2, 3, (16, 3, 7, 7))
    x, w = x.astype(np.float16)[..., ::2], w.astype(np.float16)
    wanted = direct(x, w, (2, 2), ((3, 3), (3, 3)))
    if layout == "NHWC":
        x, w, wanted = (each.transpose(0, 2, 3, 1) for each in (x, w, wanted))
    options = {"stride": 2, "padding": 3, "layout": layout}
    with gensor_kernels.emulated("sm_87"):
        assert gensor_kernels.explain(gensor_kernels.conv2d, x, w, **options).family != "contraction_strip"
        np.testing.assert_array_equal(gensor_kernels.conv2d(x, w, **options).astype(np.float64), wanted)


def test_what_is_read_is_asked_of_strides():
    for _, workload in SERVED:
        image, *rest = operator("conv2d").operands(workload)
        strides = {each.name: each.strides() for each in (image, *rest)}
        geometry = operator("conv2d").geometry(workload, strides)
        assert STRIP.reads(workload, geometry)
        apart = tuple(2 * stride for stride in strides["x"])
        assert not STRIP.reads(workload, operator("conv2d").geometry(workload, strides | {"x": apart}))
        above = (*strides["x"][:1], strides["x"][1] + 3, *strides["x"][2:])
        assert STRIP.reads(workload, operator("conv2d").geometry(workload, strides | {"x": above}))


# ---- what keeps it right is needed


@pytest.mark.parametrize(
    ("kept", "without"),
    [
        ("word &= at == 0 ? mask[0] : 0xffffffffu;", ""),
        ("word &= at == OCTETS - 1 ? mask[1] : 0xffffffffu;", ""),
        ("own.element = begin & ~(EIGHT - 1);", "own.element = begin;"),
        ("together % 16 == 0 ? 16 : together % 8 == 0 ? 8", "together % 8 == 0 ? 16"),
        ("together % 4 == 0 ? 4 : ELEMENT", "4"),
    ],
)
def test_verification_notices_what_is_missing(kept, without):
    """Masks: the filters' places that belong to no segment hold ones."""
    [each] = [each for each in strip_configurations() if each.name == "strip last"]
    assert verdict_without(kept, without, each.candidate, each.workload).outcome in ("wrong", "failed")


# ---- what it serves


def test_it_says_why_it_does_not_serve():
    arch = lookup("sm_87")
    assert "no convolution" in str(STRIP.serves(matmul(8, 8, 8), arch))
    assert "float16 and bfloat16" in str(STRIP.serves(stem(dtype="float32"), arch))
    assert "float16 and bfloat16" in str(STRIP.serves(stem(dtype="int8"), arch))
    assert "by themselves" in str(STRIP.serves(stem(c=8), arch))
    assert "gaps" in str(STRIP.serves(stem(dilation_h=2), arch))
    assert "gaps" in str(STRIP.serves(stem(groups=3, k_out=66), arch))
    assert "within a word" in str(STRIP.serves(stem(stride_w=1), arch))
    assert "within a word" in str(STRIP.serves(stem(**FIRST, stride_w=3), arch))
    assert "too many" in str(STRIP.serves(stem(**FIRST, c=32), arch))
    assert "none" in str(STRIP.serves(stem(**FIRST, c=0), arch))
    assert "cp.async" in str(STRIP.serves(stem(), lookup("sm_75")))


def test_lines_and_octets():
    call = shapes.call_of(stem())
    assert (call.lines, call.planes, call.octets, call.lead, call.steps) == (7, 1, 3, 1, 11)  # 21 and a place in front
    first = shapes.call_of(stem(**FIRST))
    assert (first.lines, first.planes, first.octets, first.lead, first.steps) == (21, 3, 1, 1, 11)
    speech = shapes.call_of(stem(**SPEECH))  # two columns are channels
    assert (speech.lines, speech.planes, speech.octets, speech.lead, speech.unit) == (5, 1, 3, 0, 2)
    assert [shapes.call_of(stem(w=w)).access for w in (64, 60, 62, 63)] == [16, 8, 4, 2]


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_the_walk_prefers_it_for_stems(layout):
    """By the potential: nothing is packed, nothing is gathered pixel by pixel."""
    workload = stem(n=16, h=224, w=224, layout=layout)
    found = search(Request(workload, lookup("sm_87"), 0, "full"))
    assert found.best[0][0].family == "contraction_strip"
