"""The families that slide windows in addition to their contracts (test_contract.py): potentials, compiled windows."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.families.core.source import bind, flatten
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space
from gensor_kernels.families.window.shape import call_of
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.verify import verify
from tests.doubles.stored import store_kernels
from tests.mutator.programs.window import window_configurations

from .lattices import fastest, random_legal
from .verified import convolved, is_right
from .workloads import space
from .workloads.window import FIRST, GROUPED, SERVED, convolution, grouped, padded, pool

WINDOW, GROUPS = FAMILIES["window"], FAMILIES["window_groups"]


@pytest.mark.parametrize("index", range(len(SERVED)))
def test_every_program_is_as_slow_as_its_memory_traffic(index):
    """No term may promise more than DRAM and the launch allow."""
    lattice = space("window", index)
    call = call_of(lattice.workload)
    points = random_legal(lattice, 300, seed=3)
    seconds = lattice.potential(points)
    least = call.outputs * call.bytes_y / (lattice.arch.dram_gb_s * 1e9)
    assert (seconds >= max(least, lattice.arch.launch_us * 1e-6)).all()


def test_a_compiled_window_is_on_the_lattice_of_its_own_workload_only():
    small, large = convolution(14, 64, 3, **padded()), convolution(14, 64, 5, **padded(2))
    arch = lookup("sm_87")
    program = next(p for p in WINDOW.starters(small, arch) if p["window"])
    assert program["window"] == 3311
    with pytest.raises(ValueError, match="window=3311"):
        Space(large, arch).family("window").point(program)
    assert Space(small.with_sizes(h=99, n=4), arch).family("window").legal(space_point(small, arch, program))[0]


@pytest.mark.parametrize("index", range(len(GROUPED)))
def test_groups_are_as_slow_as_their_arithmetic_and_memory_traffic(index):
    lattice = space("window_groups", index)
    workload, arch = lattice.workload, lattice.arch
    seconds = lattice.potential(random_legal(lattice, 300, seed=3))
    peak = arch.rate({"float32": "fma_f32", "float64": "fma_f64", "int32": "imad"}[workload.accumulator])
    least = workload.flops() / 2 / (peak * arch.sms * arch.clock_ghz * 1e9)
    assert (seconds >= max(least, workload.bytes_moved() / (arch.dram_gb_s * 1e9), arch.launch_us * 1e-6)).all()


@pytest.mark.parametrize("thread_c", [2, 4, 8])
def test_lanes_read_filters_of_neighbouring_tiles_from_different_banks(thread_c):
    workload = grouped(14, 32, 8, 8, dtype="float16", stride_h=2)
    program = GROUPS.starters(workload, lookup("sm_87"))[0]
    program = program.replace(thread_c=thread_c, thread_h=1, thread_w=7, block_c=64, block_h=4, block_w=14, vector_a=8)
    found = is_right(GROUPS, program, workload, use_cache=False).counters
    assert found["shared_loads"] > 1000 and not found.get("conflicts_load", 0)


@pytest.mark.parametrize(
    ("part", "changed", "most"),
    [
        ("sm_87", {"dtype": "float16"}, 0.6),
        ("sm_90", {"dtype": "bfloat16"}, 0.6),
        ("sm_80", {"dtype": "float32"}, 0.5),
        ("sm_120", {"dtype": "float32", **FIRST}, 0.8),
    ],
)
def test_groups_of_four_channels_are_faster_without_tensor_cores(part, changed, most):
    """Groups of four channels (ResNeXt-50) use a quarter of the least tile of tensor cores."""
    workload, arch = grouped(56, 32, 4, 4, n=8, epilogue="bias_relu", **changed), lookup(part)
    others = (FAMILIES[f"contraction_{name}"] for name in ("mma", "simt"))
    least = min(fastest(family, workload, arch) for family in others if family.serves(workload, arch) is None)
    assert fastest(GROUPS, workload, arch) < most * least


def space_point(workload, arch, program):
    return Space(workload, arch).family("window").point(program)[None]


def test_windows_that_are_not_compiled_in():
    assert call_of(convolution(30, 8, 3, **padded())).code == 3311
    assert call_of(pool("max_pool2d", 30, 8, 2, stride_h=3)).code == 2232
    assert call_of(convolution(30, 8, 3, dilation_w=2)).code == 0
    assert call_of(pool("avg_pool2d", 14, 8, 14)).code == 0
    assert call_of(pool("avg_pool2d", 9, 8, 9, stride_h=1, stride_w=1)).code == 9911


def test_a_wrong_window_is_refused():
    """The verifier's cases distinguish windows: a kernel of another one fails."""
    workload = pool("max_pool2d", 30, 16, 3, stride_h=2, stride_w=2, **padded())
    program = next(p for p in WINDOW.starters(workload, lookup("sm_87")) if p["window"])
    constants = WINDOW.constants(program, workload)
    assert constants["WINDOW"] == 3322
    source = bind(flatten("window.cu"), constants)
    each = candidate(WINDOW, program, workload)
    changed = type("Changed", (type(each),), {"source": lambda self: source.replace("WINDOW 3322", "WINDOW 3222", 1)})
    verdict = verify(changed(each.program, each.constants), workload, use_cache=False)
    assert verdict.outcome == "wrong"


# ---- Infinite elements next to a window that slides: its taps are padded to whole reads, and zero times infinity is
# NaN


@pytest.mark.parametrize("groups", [9, 3])
def test_only_outputs_that_see_an_infinity_have_one(no_databases, groups):
    arch, channels = lookup("sm_87"), 9 // groups
    if groups == 9:
        [each] = [each for each in window_configurations() if each.name == "sliding"]
        program, workload = each.candidate.program, each.workload
    else:  # a tile's filters past the last one of a group are zeros
        workload = grouped(14, 3, 3, 5, 5, **FIRST, **padded(1))
        program = GROUPS.starters(workload, arch)[0].replace(thread_c=4, block_c=24, block_h=4, block_w=16, thread_w=2)
    store_kernels(no_databases, arch, (program, workload))
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1, 9, 14, 14), np.float32)
    w = rng.standard_normal((workload.size.get("k_out", 9), channels, 5, 5), np.float32)
    places = [(channel, 3 + channel % 5, 13 - channel) for channel in range(0, 9, channels)]
    for place in places:
        x[(0, *place)] = np.inf
    how = {"groups": groups, "padding": 1}
    with gensor_kernels.emulated("sm_87"):
        assert gensor_kernels.explain(gensor_kernels.conv2d, x, w, **how).family == program.family
        found = gensor_kernels.conv2d(x, w, **how)
    wanted = convolved(x, w, pads=((1, 1), (1, 1)), groups=groups)
    assert np.isinf(wanted).sum() > 50 and not np.isnan(wanted).any()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_columns_that_are_too_far_apart_are_not_read():
    workload = grouped(8, 4, 4, 4, dtype="float16", stride_w=2)
    declared = operator(workload.operator)
    strides = {operand.name: operand.strides() for operand in declared.operands(workload)}
    n, h, _, *channels = strides["x"]
    far = strides | {"x": (n, h, 2**30, *channels)}
    read = [GROUPS.reads(workload, declared.geometry(workload, each)) for each in (strides, far)]
    assert read == [True, False]
