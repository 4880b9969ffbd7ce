"""Transposed convolutions phase by phase: only taps that meet a pixel are multiplied; outputs are in their places."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels import conv_transpose2d, explain
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.windows.conv_phased import axis, least_depth, phased, phases
from gensor_kernels.operators.windows.conv_product import _indices, output_size
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space
from gensor_tuner.build.pool import candidate
from gensor_tuner.strategies.request import Request, search
from tests.doubles.stored import store_kernels
from tests.programs.lattices import fastest
from tests.programs.workloads.contraction_phased import transposed

SIMT, MMA = FAMILIES["contraction_phased"], FAMILIES["contraction_phased_mma"]


@pytest.mark.parametrize("family", [SIMT, MMA])
def test_starters_of_usual_types_do_not_spill(family):
    """What a phase is told is a copy of the arguments: it lies in registers, and in no memory of the thread."""
    problem = transposed(dtype="float16" if family is MMA else "float32", c=128, k_out=128)
    for program in family.starters(problem, lookup("sm_87"))[:4]:
        if program["block_m"] * program["block_n"] > 64 * 64:
            continue
        binary = compile_cubin(candidate(family, program, problem).source(), "sm_87")
        entry = binary.entries[family.name]
        assert entry.stack_bytes == entry.spill_stores == 0


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
@pytest.mark.parametrize("dilation", [1, 2, 3, 4])
@pytest.mark.parametrize("taps", [1, 2, 3, 5])
def test_phases_are_the_sets_of_taps_that_outputs_meet(stride, dilation, taps):
    sizes = transposed(h=6, r=taps, stride_h=stride, dilation_h=dilation, pad_top=0, pad_bottom=0).size
    sets = {tuple(r for r in range(taps) if (o - r * dilation) % stride == 0) for o in range(stride)} - {()}
    found, lengths = axis(sizes, "h"), [len(each) for each in sets]
    assert (found.phases, found.taps) == (len(sets), max(lengths))
    assert sum(lengths) == taps and min(lengths) == taps // found.phases
    outputs = output_size(sizes, "h", True)
    assert found.outputs == max(len(range(first, outputs, stride)) for first in range(stride))
    # Nothing else meets a pixel, by the index arithmetic of the reference.
    _, inside = _indices(sizes, "h", True)
    for output, tap in zip(*np.nonzero(inside), strict=True):
        assert any(tap in each and (output - each[0] * dilation) % stride == 0 for each in sets)


def test_the_convolution_of_all_phases_has_the_taps_that_are_walked():
    problem = transposed(n=1, h=16, w=16, c=128, k_out=64)
    other = phased(problem)
    assert phases(problem) == 4 and other.flops() == problem.flops() and least_depth(problem) == 4 * 128
    assert other.operator == "conv2d" and other.size["groups"] == 4
    assert least_depth(transposed(r=3, s=3)) == 32
    assert phases(transposed(stride_h=4, stride_w=4, r=2, s=3)) == 6
    assert phases(transposed(dilation_h=2, dilation_w=2)) == 1


@pytest.mark.parametrize("pad", range(5))
@pytest.mark.parametrize("taps", [1, 2, 4])
@pytest.mark.parametrize("stride", [2, 3])
def test_padding_may_cut_outputs_off(pad, taps, stride):
    """Then no phase meets every pixel. ``pad`` at each end, of an image of six pixels across."""
    pads = dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), pad)
    problem = transposed(h=6, w=6, r=taps, s=taps, stride_h=stride, stride_w=stride, **pads)
    other, z = phased(problem), problem.size
    assert [output_size(other.size, side, False) for side in "hw"] == [axis(z, side).outputs for side in "hw"]
    assert SIMT.serves(problem, lookup("sm_87")) is None
    lattice = Space(problem, lookup("sm_87")).family(SIMT.name)
    starters = SIMT.starters(problem, lookup("sm_87"))
    assert starters and np.isfinite(lattice.potential(np.stack([lattice.point(each) for each in starters]))).all()


def test_they_say_what_they_serve():
    def reason(family=SIMT, arch="sm_87", **sizes):
        return family.serves(transposed(**sizes), lookup(arch))

    assert reason() is reason(groups=4) is reason(stride_h=7) is reason(c=0) is None
    assert "no transposed convolution" in reason(transposed=False)
    assert "innermost" in reason(layout="nchw")
    assert "more than one tap" in reason(c=7)
    assert "more than one tap" in reason(MMA, c=8, dtype="float16")
    assert "cp.async" in reason(MMA, "sm_75", weights="rsck", dtype="float16")
    # The mean of the phases has more products than the shortest sum, which has one tap.
    assert "more exact" in reason(MMA, c=192, r=3, s=3, dtype="float32")
    assert reason(MMA, c=384, r=3, s=3, dtype="float32") is None


@pytest.mark.parametrize(("arch", "dtype"), [("sm_87", "float32"), ("sm_87", "float16"), ("sm_90", "float16")])
def test_the_walk_chooses_them_where_most_taps_meet_nothing(arch, dtype):
    problem = transposed(n=4, h=28, w=28, c=128, k_out=128, dtype=dtype)
    found = search(Request(problem, lookup(arch), 0, "full"))
    assert found.best[0][0].family in (SIMT.name, MMA.name)
    other = Space(problem, lookup(arch))
    gathered = min(
        fastest(space.family, problem, lookup(arch))
        for space in other.families
        if space.family.name not in (SIMT.name, MMA.name)
    )
    assert found.best[0][1] < 0.6 * gathered


@pytest.mark.parametrize(
    "how",
    [
        {"stride": 2, "padding": 1},
        {"stride": (3, 2), "padding": (0, 2), "output_padding": (2, 1)},
        {"stride": 5, "dilation": (1, 2)},
        {"stride": 2, "dilation": 2, "padding": 3, "activation": "relu"},
        {"stride": 2, "padding": 5},
    ],
    ids=["usual", "uneven", "stride above the filter", "dilated", "most outputs cut off"],
)
@pytest.mark.parametrize("flip", [1, -1])
def test_calls_match_torch(how, flip, no_databases):
    """A stored kernel serves other sizes of its class, and views."""
    torch = pytest.importorskip("torch")
    problem = transposed()
    program = SIMT.starters(problem, lookup("sm_87"))[4].replace(split_k=3)
    store_kernels(no_databases, lookup("sm_87"), (program, problem))
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 5, 6, 32)).astype(np.float32)
    w = rng.standard_normal((32, 24, 4, 3)).astype(np.float32)
    bias = rng.standard_normal(24).astype(np.float32)
    given = {name: value for name, value in how.items() if name != "activation"}
    image, *others = (torch.from_numpy(each.astype(np.float64)) for each in (x[:, ::flip], w, bias))
    wanted = torch.nn.functional.conv_transpose2d(image.permute(0, 3, 1, 2), *others, **given)
    wanted = wanted.numpy().transpose(0, 2, 3, 1)
    wanted = np.maximum(wanted, 0) if "activation" in how else wanted
    with gensor_kernels.emulated("sm_87"):
        weights = np.ascontiguousarray(w.transpose(0, 2, 3, 1))
        told = explain(conv_transpose2d, x[:, ::flip], weights, bias, layout="NHWC", **how)
        assert told.family == SIMT.name, told
        found = conv_transpose2d(x[:, ::flip], weights, bias, layout="NHWC", **how)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
