"""Families say why they do not serve a Workload, and which of them do."""

import pytest

from gensor_kernels.families.contraction.rewrite import ozaki
from gensor_kernels.families.contraction.rewrite.split_float import LEAST_SUM
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import archs, lookup
from gensor_kernels.machine.attributes import from_attributes
from gensor_kernels.operators.attention import sequences
from gensor_kernels.operators.attention.attention import workload as attention
from gensor_kernels.operators.products import block_scaled, gated, normed, ragged
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.products.quantised import formatted
from gensor_kernels.operators.rows.views import workload as rows
from gensor_kernels.operators.windows import conv

from .workloads.images import FIRST, convolution, image, packed_image, stem, transposed
from .workloads.window import padded

DOUBLE = {"dtype": "float64"}
WGMMA_TYPES = [{"dtype": each, "trans_b": True} for each in ("float8_e5m2", "int8")]
WGMMA_TYPES += [{"dtype": "float32", "math": "tf32", "trans_b": True}, {}]
LONG = matmul(512, 511, 1003, dtype="float32")
OZAKI = matmul(64, 64, 64, **DOUBLE, math="ozaki")
COMPLEX_IMAGE = conv.workload(n=1, h=9, w=8, c=16, k_out=16, r=3, s=3, dtype="complex128", **FIRST)
PIXELS = {"n": 2, "h": 9, "w": 10, "c": 72, "k_out": 64, "r": 3, "s": 2, "dtype": "float16"}
#: Family -> (part, Workload, words of the reason).
REFUSALS = {
    "contraction_mma": [
        ("sm_80", matmul(8, 8, 8, dtype="complex64"), "complex64"),
        ("sm_80", formatted(8, 8, 64, "mxfp4"), "own main loop"),
        ("sm_75", matmul(8, 8, 8, dtype="bfloat16"), "sm_75"),
        ("sm_75", matmul(8, 8, 8, dtype="float32", math="tf32"), "tf32"),
        ("rtx-4090", matmul(512, 512, 512, dtype="float32"), "faster"),
        ("a10", matmul(512, 512, 512, dtype="float32"), "faster"),
        ("sm_80", matmul(512, 512, 383, dtype="float32"), "384"),
        ("sm_80", matmul(512, 512, 512, dtype="float32", out="float16"), "plain sums"),
        ("rtx-4090", matmul(64, 64, 64, **DOUBLE), "faster"),
        ("sm_80", matmul(64, 64, 64, **DOUBLE, out="float32"), "float32"),
    ],
    "contraction_blocks": [
        ("sm_87", matmul(8, 8, 8), "block-scaled"),
        ("sm_89", matmul(8, 8, 32, dtype="float8_e5m2", trans_b=True), "faster with scales"),
        ("sm_120", matmul(8, 8, 32, dtype="float8_e5m2"), "faster with scales"),
        ("sm_120", matmul(8, 8, 32, dtype="complex64"), "faster with scales"),
        ("sm_75", formatted(8, 8, 64, "nvfp4", dtype="float16"), "cp.async"),
        ("sm_87", formatted(8, 8, 34, "mxfp4", dtype="float16"), "4 bytes"),
        ("sm_87", formatted(8, 8, 64, "nvfp4", out="float64"), "float64"),
        ("sm_86", block_scaled.workload(8, 8, 128), "faster with scales"),
        ("sm_120", block_scaled.workload(8, 8, 130), "faster with scales"),
    ],
    "contraction_packed": [
        ("sm_87", matmul(8, 8, 8), "no convolution"),
        ("sm_87", convolution(14, 64, 64, dtype="float16"), "where they are"),
        ("sm_87", convolution(14, 3, 64, dtype="float32"), "no tensor-core"),
        ("sm_87", convolution(1, 2048, 2**20, **FIRST, dtype="int8", **padded()), "32 bits"),
        ("sm_80", COMPLEX_IMAGE, "complex"),
    ],
    "contraction_patch": [
        ("sm_87", matmul(8, 8, 8), "no convolution"),
        ("sm_87", convolution(14, 64, 64, dtype="float16"), "innermost"),
        ("sm_87", convolution(14, 64, 64, **FIRST), "float16, bfloat16 and int8"),
        ("sm_87", convolution(14, 3, 64, **FIRST, dtype="int8"), "4 bytes"),
        ("sm_75", convolution(14, 64, 64, **FIRST, dtype="int8"), "cp.async"),
    ],
    "contraction_strip": [
        ("sm_87", matmul(8, 8, 8), "no convolution"),
        ("sm_87", stem(dtype="float32"), "float16 and bfloat16"),
        ("sm_87", stem(dtype="int8"), "float16 and bfloat16"),
        ("sm_87", stem(c=8), "by themselves"),
        ("sm_87", stem(dilation_h=2), "gaps"),
        ("sm_87", stem(groups=3, k_out=66), "gaps"),
        ("sm_87", stem(stride_w=1), "within a word"),
        ("sm_87", stem(**FIRST, stride_w=3), "within a word"),
        ("sm_87", stem(**FIRST, c=32), "too many"),
        ("sm_87", stem(**FIRST, c=0), "none"),
        ("sm_75", stem(), "cp.async"),
    ],
    "contraction_phased": [
        ("sm_87", transposed(transposed=False), "no transposed convolution"),
        ("sm_87", transposed(**FIRST), "innermost"),
        ("sm_87", transposed(c=7), "more than one tap"),
    ],
    "contraction_phased_mma": [
        ("sm_87", transposed(c=8, dtype="float16"), "more than one tap"),
        ("sm_75", transposed(weights="rsck", dtype="float16"), "cp.async"),
        # The mean of the phases has more products than the shortest sum, which has one tap.
        ("sm_87", transposed(c=192, r=3, s=3, dtype="float32"), "more exact"),
    ],
    "contraction_sliced": [
        ("rtx-4090", matmul(64, 64, 64, **DOUBLE), "may be cut"),
        ("rtx-4090", OZAKI.with_sizes(k=ozaki.MOST_K + 1), str(ozaki.MOST_K)),
    ],
    "contraction_aligned": [
        ("sm_89", matmul(512, 512, 516), "no warpgroup products"),
        ("sm_90", matmul(512, 512, 516, dtype="float32"), ""),
        ("sm_90", gated.workload("swiglu", 1024, 14336, 4096, trans_b=True), ""),
        ("sm_90", normed.with_norm("layernorm", matmul(512, 768, 767, epilogue=("bias",)), 1), ""),
        ("sm_90", ragged.workload(8, 512, 511, 512), ""),
    ],
    "contraction_floats_wgmma": [
        ("sm_89", LONG, "no warpgroup products"),
        ("sm_89", image(), "no warpgroup products"),
        ("sm_90", LONG.with_sizes(k=LEAST_SUM - 1), "no less exact than multiply-adds from"),
        ("sm_90", matmul(512, 511, 1003, dtype="float32", math="tf32"), ""),
        ("sm_90", matmul(512, 512, 512), ""),
        ("sm_90", matmul(512, 512, 512, **DOUBLE), ""),
        ("sm_90", gated.workload("swiglu", 512, 512, 512, dtype="float32"), ""),
        ("sm_90", normed.with_norm("layernorm", matmul(512, 768, 1024, dtype="float32", epilogue=("bias",)), 1), ""),
        ("sm_90", image(c=LEAST_SUM // 4 - 1), "no less exact than multiply-adds from"),
        ("sm_90", image(c=1024, groups=2, **FIRST), "groups of channels are not divided"),
        ("sm_90", image(pad_left=200, c=2048), "do not step, pad or dilate"),
        ("sm_90", image(math="tf32"), "no product of float32 parts"),
    ],
    "contraction_wgmma": [
        ("sm_100", matmul(64, 64, 64), "sm_100"),
        ("h200", matmul(64, 64, 60, trans_b=True), "multiples of 16 bytes"),
        ("h200", matmul(64, 64, 64, dtype="float32"), "no warpgroup product of float32"),
        ("h200", matmul(64, 64, 64, dtype="float8_e4m3fn", out="float16"), "from rows along k only, unlike those of b"),
        (
            "h200",
            matmul(64, 64, 64, dtype="int8", trans_a=True, trans_b=True),
            "int8 is multiplied from rows along k",
        ),
        ("h200", matmul(64, 64, 64, dtype="float32", math="tf32", trans_a=True), "along k only"),
        ("h200", matmul(64, 64, 64, dtype="float16", dtype_b="int8"), "no warpgroup product of float16 and int8"),
        ("sm_90", conv.workload(**PIXELS | {"c": 64, "groups": 2}), "other groups"),
        ("sm_90", conv.workload(**PIXELS | {"c": 12}), "multiples of 16 bytes"),
        ("sm_90", conv.workload(**PIXELS | {"stride_h": 9}), "step, pad or dilate"),
        ("sm_90", conv.workload(**PIXELS | {"pad_left": 129, "w": 300}), "step, pad or dilate"),
        ("sm_90", conv.workload(**PIXELS | {"w": 600, "s": 3, "dilation_w": 128}), "step, pad or dilate"),
        ("sm_90", conv.workload(**PIXELS | {"layout": "nchw"}), "multiples of 16 bytes"),
        ("sm_90", conv.workload(**PIXELS | {"dtype": "float32"}), "no warpgroup product of float32"),
    ],
    "contraction_tcgen05": [
        ("sm_90", matmul(64, 64, 64), "no tensor memory"),
        ("sm_120", matmul(64, 64, 64), "no tensor memory"),
        ("b200", matmul(64, 64, 60, trans_b=True), "multiples of 16 bytes"),
        ("b200", matmul(64, 64, 64, dtype="float32"), "no product in tensor memory of float32"),
        ("b200", matmul(64, 64, 64, dtype="float8_e4m3fn", out="float16"), "from rows along k only, unlike those of b"),
        ("b200", formatted(512, 512, 1024, "nvfp4", dtype="bfloat16"), "no product in tensor memory of bfloat16 and"),
        ("b200", formatted(512, 512, 1056, "mxfp8"), "scales are copied in whole words of 4"),
        ("sm_100", conv.workload(**PIXELS | {"c": 64, "groups": 2}), "other groups"),
    ],
    "contraction_packed_wgmma": [
        ("sm_90", packed_image(layout="nhwc"), "innermost"),
        ("sm_90", packed_image(transposed=True), "transposed"),
        ("sm_89", packed_image(), "no warpgroup products"),
        ("sm_90", packed_image(c=3), "multiples of 16 bytes"),
        ("sm_90", packed_image(dtype="float32"), "no warpgroup product of float32"),
        ("sm_90", packed_image(stride_w=9), "do not step"),
    ],
    "gemv": [
        ("sm_87", matmul(17, 17, 64), "neither m nor n"),
        ("sm_87", conv.workload(n=1, h=8, w=8, c=8, k_out=8, r=3, s=3), "window"),
    ],
    "window": [("sm_80", matmul(8, 8, 8), "matmul")],
    "window_groups": [
        ("sm_80", matmul(8, 8, 8), "no convolution"),
        ("sm_80", transposed(groups=4), "no convolution"),
        ("sm_80", conv.workload(n=1, h=8, w=8, c=8, k_out=8, r=3, s=3), "one group"),
        ("sm_80", convolution(8, 130, 4, groups=2), "groups of 65"),
        ("sm_80", convolution(8, 8, 8, groups=2, dtype="complex64"), "not folded"),
    ],
    "rows": [
        ("sm_87", matmul(8, 8, 8), "no rows"),
        ("sm_87", rows("argmax", (8, 8), (1,), "float32", epilogue="relu"), "no epilogue"),
    ],
    "attention": [
        ("sm_80", attention(8, head=64, dtype="float32"), "two products and a softmax"),
        ("sm_75", attention(8, head=64, dtype="bfloat16"), "sm_75 has no tensor cores for bfloat16: cast"),
        ("sm_80", attention(8, head=257), "heads of up to 256 elements, got 257: "),
        ("sm_80", attention(8, head=64, mask="float64"), "not float64: cast the mask"),
        ("sm_80", matmul(8, 8, 8), "no attention"),
    ],
    "attention_wgmma": [
        ("sm_87", attention(8, head=64), "sm_87 has no warpgroup products"),
        ("sm_100", attention(8, head=64), "no warpgroup products"),
        ("sm_90", attention(8, head=257), "heads of up to 256 elements, got 257: "),
        ("sm_90", attention(8, head=60), "queries from addresses and rows that are multiples of 16 bytes only"),
        ("sm_90", attention(8, head=64, mask="float64"), "not float64: cast the mask"),
        ("sm_90", sequences.workload(4, 8, 64, page_size=16, head=64), "read keys one after the other, not in pages"),
    ],
    "attention_tcgen05": [
        ("sm_90", attention(8, head=64), "sm_90 has no tensor memory"),
        ("sm_100", attention(8, head=64, mask="float64"), "not float64: cast the mask"),
        ("sm_100", attention(8, head=60), "queries from addresses and rows that are multiples of 16 bytes only"),
    ],
}
#: (part, Workload) -> the families that serve it, or the only one of two.
SERVED = [
    ("sm_86", matmul(17, 17, 8, **DOUBLE), {"contraction_simt"}),
    ("sm_87", rows("softmax", (8, 8), (1,), "float32"), {"rows"}),
    ("sm_90", block_scaled.workload(512, 512, 1024), {"contraction_wgmma"}),
    ("b200", block_scaled.workload(512, 512, 1024), {"contraction_tcgen05"}),
    ("sm_89", block_scaled.workload(512, 512, 1024), {"contraction_blocks"}),
    ("rtx-5090", block_scaled.workload(1, 512, 1028, dtype_b="float8_e5m2"), {"contraction_blocks"}),
    ("sm_87", attention(1024, causal=True), {"attention"}),
    ("sm_90", attention(4096, heads=16, head=128, causal=True), {"attention", "attention_wgmma"}),
    ("sm_100", attention(4096, heads=16, head=128, causal=True), {"attention", "attention_tcgen05"}),
    (
        "sm_87",
        convolution(28, 64, 64, **FIRST, dtype="float16"),
        {"contraction_mma", "contraction_packed", "contraction_patch", "contraction_simt"},
    ),
    *(("h200", matmul(64, 64, 64, **each), {"contraction_wgmma"}) for each in WGMMA_TYPES),
    *(("b200", matmul(64, 64, 64, **each), {"contraction_tcgen05"}) for each in WGMMA_TYPES),
    ("sm_90", packed_image(c=9), {"contraction_packed_wgmma", "contraction_simt", "contraction_mma"}),
    ("sm_87", transposed(c=384, r=3, s=3, dtype="float32"), {"contraction_phased", "contraction_phased_mma"}),
]


@pytest.mark.parametrize("name", REFUSALS)
def test_a_family_says_why_it_does_not_serve(name):
    for part, workload, words in REFUSALS[name]:
        reason = FAMILIES[name].serves(workload, lookup(part))
        assert reason is not None and words in reason, (part, workload)


def test_tensor_memory_has_sums_of_integers_on_one_capability():
    """PTX ISA, tcgen05.mma: kind::i8 is of sm_100a alone; the other kinds are of sm_103a, too."""
    integers, halves = (matmul(64, 64, 64, dtype=dtype, trans_b=True) for dtype in ("int8", "float16"))
    family, b300 = FAMILIES["contraction_tcgen05"], from_attributes((10, 3), "NVIDIA B300", 148, 1.9)
    assert family.serves(integers, lookup("b200")) is None and family.serves(halves, b300) is None
    assert family.serves(integers, b300) == "sm_103 has no product in tensor memory of int8"


@pytest.mark.parametrize(("part", "workload", "names"), SERVED)
def test_families_serve(part, workload, names):
    found = {each.family.name for each in Space(workload, lookup(part)).families}
    assert names <= found
    assert found == names or names & {
        *("contraction_wgmma", "contraction_tcgen05", "contraction_packed_wgmma", "contraction_phased")
    }


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_one_family_reads_an_image_by_its_pixels(layout):
    families = FAMILIES["contraction_wgmma"], FAMILIES["contraction_packed_wgmma"]
    assert [each.serves(packed_image(layout=layout), lookup("sm_90")) for each in families].count(None) == 1


@pytest.mark.parametrize(
    ("sizes", "dtype"), [((512, 512, 512), "float16"), ((512, 512, 516), "float16"), ((8,) * 3, "int8")]
)
def test_operands_are_copied_first_only_where_tensor_copies_cannot_read_them(sizes, dtype):
    families = FAMILIES["contraction_wgmma"], FAMILIES["contraction_aligned"]
    assert [each.serves(matmul(*sizes, dtype=dtype), lookup("sm_90")) for each in families].count(None) == 1


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_tensor_cores_multiply_doubles_on_two_capabilities(dtype):
    mma = FAMILIES["contraction_mma"]
    served = {arch.name for arch in archs() if mma.serves(matmul(64, 64, 64, dtype=dtype), arch) is None}
    assert served == {"sm_80", "sm_90"}
    assert dtype == "float64" or mma.serves(COMPLEX_IMAGE, lookup("sm_80")) is None


def test_slices_serve_parts_that_multiply_doubles_slowly():
    served = {arch.part for arch in archs() if FAMILIES["contraction_sliced"].serves(OZAKI, arch) is None}
    slow = {"h20", "h800"}  # Hoppers of 1 TFLOP/s
    assert served >= slow | {arch.part for arch in archs() if arch.name in ("sm_86", "sm_87", "sm_89")}
    assert not served & {arch.part for arch in archs() if arch.name in ("sm_75", "sm_80", "sm_90", "sm_100")} - slow
