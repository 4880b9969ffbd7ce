"""The potential prefers the family that is faster: by its starters, and at the end of a walk."""

import pytest

from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace, Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import RAMP_US, START_TRIPS, bound_us
from gensor_kernels.operators.attention.attention import workload as attention
from gensor_kernels.operators.products import block_scaled, gated, normed, ragged
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.windows import conv
from gensor_tuner.search.walk import walk
from gensor_tuner.strategies.request import Request, search
from tests.campaign_size import sample

from .lattices import fastest
from .workloads.images import ONE_TAP, convolution, image, packed_image, stem, transposed
from .workloads.window import padded

MMA, SIMT, WGMMA, ALIGNED = (f"contraction_{name}" for name in ("mma", "simt", "wgmma", "aligned"))
FLOATS, SLICED = "contraction_floats_wgmma", "contraction_sliced"
PACKED, PACKED_WGMMA = "contraction_packed", "contraction_packed_wgmma"
LARGE = (4096, 4096, 4096)
SINGLE, DOUBLE = matmul(*LARGE, dtype="float32"), matmul(*LARGE, dtype="float64")
OZAKI, COMPLEX = matmul(*LARGE, dtype="float64", math="ozaki"), matmul(2048, 2048, 2048, dtype="complex128", math="3m")
#: Part, Workload, the faster family, the other one, and the most that its time may be of the other's.
FASTER = [
    ("sm_90", matmul(4096, 4096, 4091), ALIGNED, MMA, 0.8),
    ("sm_90", matmul(4096, 4096, 4096, dtype_b="int8"), ALIGNED, MMA, 0.8),
    ("sm_90", matmul(256, 256, 251), MMA, ALIGNED, 1.0),
    ("sm_90", SINGLE, FLOATS, MMA, 0.8),
    ("sm_90", matmul(16, 4096, 1000, dtype="float32"), MMA, FLOATS, 1.0),
    ("sm_90", image(n=128, c=256, k_out=256), FLOATS, MMA, 0.75),
    ("sm_90", image(n=128, **ONE_TAP, k_out=16), MMA, FLOATS, 1.0),
    ("sm_90", packed_image(n=32, c=512, k_out=512, **padded()), PACKED_WGMMA, PACKED, 0.85),
    ("sm_90", packed_image(c=9, k_out=16), PACKED, PACKED_WGMMA, 1.0),
    ("sm_90", ragged.workload(8, 16384, 4096, 4096, dtype="bfloat16"), WGMMA, MMA, 0.75),
    ("sm_90", normed.with_norm("rmsnorm", matmul(*LARGE, epilogue=("bias",)), 1), WGMMA, MMA, 0.85),
    ("sm_90", normed.with_norm("rmsnorm", matmul(512, 768, 3072, epilogue=("bias",)), 1), WGMMA, MMA, 0.85),
    ("sm_90", attention(4096, heads=16, head=128, causal=True), "attention_wgmma", "attention", 0.7),
    ("sm_100", attention(4096, heads=16, head=128, causal=True), "attention_tcgen05", "attention", 0.7),
    ("a100-40gb", DOUBLE, MMA, SIMT, 0.52),
    ("h200", DOUBLE, MMA, SIMT, 0.52),
    ("a100-40gb", SINGLE, MMA, SIMT, 0.52),
    ("h100-sxm", SINGLE, MMA, SIMT, 0.68),
    ("orin-nano-8gb", SINGLE, MMA, SIMT, 0.74),
    ("b200", SINGLE, MMA, SIMT, 0.76),
    ("a100-40gb", COMPLEX, MMA, SIMT, 0.55),
    ("h100-sxm", COMPLEX, MMA, SIMT, 0.55),
    ("rtx-4090", OZAKI, SLICED, SIMT, 0.25),
    ("orin-nano-8gb", OZAKI, SLICED, SIMT, 0.25),
    ("rtx-3090", OZAKI, SLICED, SIMT, 0.25),
    ("l4", OZAKI, SLICED, SIMT, 0.4),
    ("rtx-5090", matmul(*LARGE, dtype="float8_e4m3fn", trans_b=True), "contraction_blocks", MMA, 0.65),
]
CHANNELS = {"n": 8, "h": 56, "w": 56, "k_out": 128, "r": 3, "s": 3, "dtype": "float16", **padded()}
#: Part, Workload, the families of which a walk ends with one.
CHOSEN = [
    ("sm_87", conv.workload(**CHANNELS, c=127, layout="nchw"), (PACKED,)),
    ("sm_87", conv.workload(**CHANNELS, c=3), (PACKED,)),
    # A filter of 2 MB is not rewritten for 196 outputs.
    (
        "sm_87",
        convolution(14, 512, 512, layout="nchw", dtype="int8", **padded()).with_sizes(n=1),
        ("contraction_patch",),
    ),
    ("sm_87", stem(n=16, h=224, w=224), ("contraction_strip",)),
    ("sm_87", stem(n=16, h=224, w=224, layout="nchw"), ("contraction_strip",)),
    ("sm_90", gated.workload("swiglu", 1024, 14336, 4096, trans_b=True), (WGMMA,)),
    *(
        (
            arch,
            transposed(n=4, h=28, w=28, c=128, k_out=128, dtype=dtype),
            ("contraction_phased", "contraction_phased_mma"),
        )
        for arch, dtype in (("sm_87", "float32"), ("sm_87", "float16"), ("sm_90", "float16"))
    ),
]


@pytest.mark.parametrize(("part", "workload", "faster", "slower", "most"), FASTER)
def test_a_family_is_predicted_faster(part, workload, faster, slower, most):
    arch = lookup(part)
    seconds = [fastest(FAMILIES[name], workload, arch) for name in (faster, slower)]
    assert seconds[0] < most * seconds[1]
    math = workload.math if workload.math == "ozaki" else "ieee"
    if workload in (SINGLE, DOUBLE, OZAKI):
        assert workload.flops() / seconds[0] <= arch.fastest(workload.dtype["a"], math)


@pytest.mark.parametrize(("part", "workload", "families"), sample(CHOSEN, 2))
def test_a_walk_chooses_a_family(part, workload, families):
    assert search(Request(workload, lookup(part), 0, "full")).best[0][0].family in families


GEMV, TENSOR_CORES = {"gemv"}, {MMA, WGMMA}
#: Part, Workload, the families of which a short walk ends with one, and the most that its time, without what every
#: launch takes, may be of the bound.
NEAR_THE_BOUND = [
    ("sm_87", matmul(1, 1280, 1280, dtype="float32"), GEMV, 1.25),
    ("sm_87", matmul(1, 4097, 4097, dtype="float16"), GEMV, 1.25),
    ("sm_90", matmul(1, 4352, 4352, dtype="float32"), GEMV, 1.3),
    ("sm_90", matmul(1, 1280, 1280, dtype="float32", trans_b=True), GEMV, 1.1),
    ("sm_90", matmul(4, 8192, 2048, dtype="float32", trans_b=True), GEMV, 1.3),
    ("sm_90", matmul(1, 1, 1 << 20, dtype="float32"), GEMV, 2.0),
    ("sm_90", matmul(16, 14336, 4096, trans_b=True), TENSOR_CORES, 1.3),
]


@pytest.mark.parametrize(("part", "workload", "families", "most"), NEAR_THE_BOUND)
def test_walks_get_near_the_bound_of_skinny_products(part, workload, families, most):
    space = Space(workload, lookup(part))
    assert families | {"gemv"} <= {*space.names}
    program, seconds = walk(space, seed=0, chains=32, steps=100, keep=1).best[0]
    assert program.family in families
    launch = RAMP_US + START_TRIPS * space.arch.dram_latency * 1e-3 / space.arch.clock_ghz
    assert seconds * 1e6 - launch <= most * bound_us(workload, space.arch)


def test_scales_cost_little():
    arch = lookup("sm_90")
    scaled = fastest(FAMILIES[WGMMA], block_scaled.workload(64, 7168, 2048), arch)
    plain = fastest(FAMILIES[WGMMA], matmul(64, 7168, 2048, dtype="float8_e4m3fn", out="bfloat16", trans_b=True), arch)
    assert plain < scaled < 1.1 * plain


@pytest.mark.parametrize("part", ["rtx-5090", "rtx-pro-6000"])
@pytest.mark.parametrize("size", [LARGE, (16, 7168, 2048)])
def test_scales_cost_little_next_to_those_of_tensor_cores(part, size):
    family, arch = FAMILIES["contraction_blocks"], lookup(part)
    scaled = fastest(family, block_scaled.workload(*size), arch)
    plain = fastest(family, matmul(*size, dtype="float8_e4m3fn", out="bfloat16", trans_b=True), arch)
    assert plain < scaled < 1.2 * plain


def test_scales_cost_little_in_tensor_memory():
    """Sums of 256 columns are added in less time than they are multiplied; a tile's results wait for the last."""
    arch, seconds = lookup("b200"), []
    for each in (block_scaled.workload(*LARGE), matmul(*LARGE, dtype="float8_e4m3fn", out="bfloat16", trans_b=True)):
        values = {"block_n": 256, "block_k": 128, "cluster": 1, "stages": 5, "epilogue_staged": 3, "vector_c": 16}
        space = FamilySpace(FAMILIES["contraction_tcgen05"], each, arch)
        point = space.point(space.family.starters(each, arch)[0].replace(**values))
        assert space.legal(point[None])
        seconds.append(float(space.potential(point[None])[0]))
    scaled, plain = seconds
    assert plain < scaled < 1.1 * plain


def test_eight_bit_floats_are_predicted_faster_than_widened_ones():
    family, arch = FAMILIES[MMA], lookup("sm_89")
    own, widened = (
        matmul(*LARGE, dtype="float8_e4m3fn", trans_b=not across, out="float16") for across in (False, True)
    )
    assert fastest(family, own, arch) < 0.7 * fastest(family, widened, arch)


def test_two_pairs_request_less_and_find_fewer_multiprocessors():
    workload, arch = matmul(8192, 8192, 8192, dtype="float8_e4m3fn", out="bfloat16", trans_b=True), lookup("b200")
    space = FamilySpace(FAMILIES["contraction_tcgen05"], workload, arch)
    values = {"block_n": 256, "block_k": 128, "stages": 4, "split_k": 1, "epilogue_staged": 3, "vector_c": 16}
    program = space.family.starters(workload, arch)[0].replace(**values, min_blocks=1)
    terms = [space.explain(space.point(program.replace(cluster=cluster))) for cluster in (1, 2, 3)]
    pair, *twice = terms
    for two in twice:
        assert two["l2_bytes"] == pytest.approx(pair["l2_bytes"] * 3 / 4, rel=0.01)
        assert two["l2_bytes"] * two["arriving"] == pytest.approx(pair["l2_bytes"] * pair["arriving"], rel=0.01)
        assert two["placed"] == pytest.approx(136 / 148)
    narrow = program.replace(block_n=128)
    along_m, along_n = (space.explain(space.point(narrow.replace(cluster=cluster))) for cluster in (2, 3))
    assert along_n["l2_bytes"] == pytest.approx(along_m["l2_bytes"] * 128 / 160, rel=0.01)
    [launch] = space.family.launches(program.replace(cluster=2), workload)
    assert launch.cluster == 4 and [launch.blocks(sms) for sms in (1, 74, 148, 160)] == [4, 68, 136, 160]


def test_pairs_request_less_and_gain_where_the_l2_is_the_limit():
    workload = matmul(8192, 8192, 8192, trans_b=True)
    space = FamilySpace(FAMILIES[WGMMA], workload, lookup("h200"))
    program = space.family.starters(workload, space.arch)[0].replace(
        block_m=128, block_n=256, block_k=64, persistent=1, stages=4, consumers=2, split_k=1
    )
    alone, along_m, along_n = (space.point(program.replace(cluster=cluster)) for cluster in (0, 1, 2))
    requested = [space.explain(point)["l2_bytes"] for point in (alone, along_m, along_n)]
    assert requested[1] == pytest.approx(requested[0] * 2 / 3, rel=0.01)
    assert requested[2] == pytest.approx(requested[0] * 5 / 6, rel=0.01)
    times = [float(space.potential(point[None])[0]) for point in (alone, along_m)]
    assert times[1] < 0.98 * times[0]
    narrow = FamilySpace(FAMILIES[WGMMA], matmul(64, 8192, 8192, trans_b=True), lookup("h200"))
    lonely, paired = (narrow.point(program.replace(block_m=64, consumers=1, cluster=cluster)) for cluster in (0, 1))
    assert narrow.potential(lonely[None])[0] < narrow.potential(paired[None])[0]  # the second block has no rows
