"""Workloads of the families of convolutions, and the small Programs that their mutants are tried on."""

from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv
from tests.mutator.engine.configuration import Configuration

from . import Contract, product_and_reduction
from .window import padded

FIRST = {"layout": "nchw"}
IMAGE = {"n": 8, "h": 14, "w": 14, "c": 256, "k_out": 128, "r": 3, "s": 3, **padded()}
ONE_TAP = {"c": 1024, "r": 1, "s": 1, **padded(0)}
PIXELS = {"n": 8, "h": 28, "w": 28, "c": 128, "k_out": 128, "r": 3, "s": 3, "layout": "nchw"}
STEM = {"n": 2, "h": 64, "w": 64, "c": 3, "k_out": 64, "r": 7, "s": 7, "stride_h": 2, "stride_w": 2, **padded(3)}
SPEECH = {"h": 41, "w": 60, "c": 1, "k_out": 32, "r": 5, "s": 20, **padded(0), **FIRST}


def convolution(side: int, c: int, k: int, taps: int = 3, **more) -> Workload:
    return conv.workload(**{"n": 2, "h": side, "w": side, "c": c, "k_out": k, "r": taps, "s": taps} | more)


def packed_image(**sizes):
    """A convolution of eight images with channels first by 3 x 3 taps, with other sizes where given."""
    return conv.workload(**PIXELS | {"dtype": "float16"} | sizes)


def transposed(**sizes) -> Workload:
    """A transposed convolution of two images by 4 x 4 taps and a stride of 2, with other sizes where given."""
    square = {"n": 2, "h": 9, "w": 9, "c": 32, "k_out": 24, "r": 4, "s": 4, "stride_h": 2, "stride_w": 2}
    return conv.workload(**square | padded() | {"transposed": True} | sizes)


def stem(**more) -> Workload:
    """The first convolution of a residual network on a small image, or one that differs from it."""
    return conv.workload(**{**STEM, "dtype": "float16"} | more)


def image(**changed):
    """A convolution of eight images by 3 x 3 taps, with other sizes where given."""
    return conv.workload(**IMAGE | {"dtype": "float32"} | changed)


def by_phases(served: list[tuple[str, Workload]]) -> Contract:
    """Return a contract whose second launch puts the phases' outputs in their places and adds the parts of a split."""
    return Contract(
        served,
        entries=lambda program: [program.family, "contraction_interleave"],
        starters=lambda starters, index: [],
        relaxed={"min_blocks": 1},
    )


CONTRACTS = {
    "contraction_packed": Contract(
        [
            ("sm_87", convolution(28, 64, 64, layout="nchw", dtype="float16", epilogue="bias_relu", **padded())),
            ("sm_90", convolution(32, 3, 64, 7, dtype="float16", stride_h=2, stride_w=2, **padded(3))),
            ("sm_87", convolution(14, 40, 48, layout="nchw", dtype="int8", groups=2)),
            ("sm_75", convolution(14, 20, 45, dtype="int8", dilation_h=2, **padded())),
            ("sm_80", convolution(14, 12, 64, weights="rsck", dtype="bfloat16", epilogue="bias_add_relu")),
            ("sm_87", convolution(14, 128, 64, 1, layout="nchw", dtype="float16", stride_h=2, stride_w=2)),
            ("sm_89", convolution(14, 3, 32, layout="nchw", dtype="float32", math="tf32", **padded())),
            ("sm_87", convolution(9, 24, 16, layout="nchw", dtype="float16", transposed=True, stride_h=2, **padded())),
        ],
        entries=lambda program: ["contraction_pack", *product_and_reduction(program)],
    ),
    "contraction_packed_wgmma": Contract(
        [
            ("sm_90", packed_image(n=16, c=512, k_out=512, **padded(), epilogue="bias")),
            ("sm_90", packed_image(h=7, w=7, dtype="bfloat16", epilogue="bias")),
            ("sm_90", packed_image(groups=2, epilogue="bias_add_relu")),
            ("sm_90", packed_image(dtype="int8")),
            ("sm_90", packed_image(dtype="float32", math="tf32")),
        ],
        entries=lambda program: ["contraction_pack", *product_and_reduction(program)],
        executed=False,
        spills={},
    ),
    "contraction_patch": Contract(
        [
            ("sm_87", convolution(14, 64, 64, **FIRST, dtype="float16", epilogue="bias_relu", **padded())),
            ("sm_87", convolution(14, 96, 48, 5, **FIRST, dtype="int8", **padded(2))),
            ("sm_90", convolution(9, 40, 45, **FIRST, dtype="bfloat16", groups=5, stride_h=2, stride_w=2)),
            ("sm_87", convolution(15, 32, 32, **FIRST, r=5, s=10, dtype="int8", stride_h=2, stride_w=2)),
            ("sm_80", convolution(14, 128, 64, 1, **FIRST, dtype="float16", stride_h=2, stride_w=2)),
            ("sm_87", convolution(12, 32, 32, **FIRST, dtype="float16", groups=8, epilogue="bias", **padded())),
            ("sm_89", convolution(27, 20, 24, **FIRST, dtype="int8", dilation_w=2, epilogue="relu", **padded())),
        ]
    ),
    "contraction_strip": Contract(
        [
            ("sm_87", stem(epilogue="bias_relu")),
            ("sm_90", stem(**FIRST, epilogue="bias_add_relu")),
            ("sm_87", stem(**SPEECH)),
            ("sm_80", stem(r=3, s=3, k_out=32, **padded(1), dtype="bfloat16", epilogue="relu6")),
            ("sm_90", stem(r=11, s=11, stride_h=4, stride_w=4, k_out=96, **padded(2), out="float32")),
            ("sm_89", stem(**FIRST, r=3, s=3, h=33, w=35, k_out=45, **padded(1), dtype="bfloat16")),
            ("sm_87", stem(c=4, r=3, s=3, stride_h=1, stride_w=1, k_out=24, weights="rsck", **padded(1))),
            ("sm_86", stem(c=6, r=2, s=5, stride_h=3, stride_w=1, k_out=17, **padded(2))),
        ],
        fewest_starters=3,
        starters=lambda starters, index: [starters[0], starters[-1].replace(epilogue_fixed=1)],
    ),
    "contraction_floats_wgmma": Contract(
        [
            ("sm_90", matmul(1000, 1001, 1017, dtype="float32", epilogue=("bias", "gelu"))),
            ("sm_90", matmul(512, 512, 1024, dtype="float32", epilogue=("bias", "gelu"))),
            ("sm_90", image(**ONE_TAP, stride_h=2, stride_w=2, weights="rsck")),
            ("sm_90", image(c=254)),
            ("sm_90", image(c=253, **FIRST)),
            ("sm_90", image(n=3, h=9, w=23, c=200, k_out=77, s=5, stride_h=2, dilation_w=2)),
            ("sm_90", image(**FIRST, c=512, s=1, pad_left=0, pad_right=0, stride_w=2, epilogue=("bias", "relu"))),
        ],
        entries=lambda program: ["contraction_divide", *product_and_reduction(program)],
        executed=False,
        spills={},
    ),
    "contraction_phased": by_phases(
        [
            ("sm_87", transposed(epilogue="bias_relu")),
            ("sm_90", transposed(weights="rsck", c=24, k_out=6, groups=2, r=3, stride_w=3, dilation_w=2)),
            ("sm_75", transposed(dtype="float16", c=12, k_out=5)),
            ("sm_80", transposed(dtype="float64", k_out=45)),
            ("sm_89", transposed(dtype="complex64", groups=2)),
            ("sm_86", transposed(dtype="int8")),
        ]
    ),
    "contraction_phased_mma": by_phases(
        [
            ("sm_87", transposed(dtype="float16", epilogue="bias_add_relu")),
            ("sm_80", transposed(dtype="bfloat16", weights="rsck", groups=2)),
            ("sm_75", transposed(dtype="int8")),
            ("sm_89", transposed(dtype="float32", math="tf32")),
            ("sm_87", transposed(dtype="float32", c=128)),
            ("sm_90", transposed(dtype="float64", weights="rsck")),
        ]
    ),
}


def packed_configurations() -> list[Configuration]:
    """Pixels as rows and as columns, every order of copies, transposed too, copies and stores of all widths."""
    base = {
        "block_m": 32, "block_n": 32, "block_k": 32, "warp_m": 16, "warp_n": 16, "raster": 1, "split_k": 1,
        "epilogue_staged": 1, "epilogue_fixed": 0, "min_blocks": 0, "swizzle": 1, "instruction": 0, "stages": 3,
        "copy": 1,
    }  # fmt: skip
    half = {"dtype": "float16"}
    made = {
        "first": (convolution(9, 10, 10, layout="nchw", groups=2, **half), {"split_k": 2, "warp_m": 32}),
        "last": (convolution(9, 12, 16, groups=2, **half), {"raster": 2}),
        "single columns": (
            convolution(9, 10, 10, layout="nchw", **half),
            {"split_k": 2, "block_m": 16, "block_n": 128, "warp_n": 32, "vector_c": 2, "epilogue_staged": 0},
        ),
        "split, wide": (convolution(10, 10, 10, layout="nchw", **half), {"split_k": 2, "warp_m": 32, "vector_c": 16}),
        "one channel": (
            convolution(9, 1, 16, dtype="float32", math="tf32"),
            {"vector_a": 4, "vector_b": 4, "instruction": 2, "block_k": 16},
        ),
        "filters last": (convolution(9, 12, 16, weights="rsck", **half), {"stages": 2, "copy": 0}),
        "few channels": (convolution(9, 3, 16, **half), {"vector_a": 8, "vector_b": 8}),
        "filters stay": (convolution(9, 16, 16, layout="nchw", **half), {}),
        "unchanged": (convolution(10, 16, 16, layout="nchw", **half), {"epilogue_fixed": 1, "vector_c": 8}),
        "tall": (convolution(9, 12, 48, **half), {"block_m": 48, "warp_m": 48, "epilogue_fixed": 1}),
        "narrow": (convolution(9, 12, 16, **half), {"block_n": 16, "warp_n": 8, "epilogue_fixed": 1}),
        "odd": (convolution(9, 12, 15, **half), {"epilogue_fixed": 1, "vector_c": 2}),
        "stream": (
            convolution(9, 10, 10, layout="nchw", groups=2, **half),
            {"stream": 8, "min_blocks": 1, "warp_m": 32},
        ),
        "transposed first": (convolution(9, 10, 10, layout="nchw", transposed=True, **half), {}),
        "transposed last": (convolution(9, 10, 16, transposed=True, **half), {}),
    }
    return [
        Configuration(f"packed {name}", "packed", "sm_87", workload, base | values)
        for name, (workload, values) in made.items()
    ]


def phased_configurations() -> list[Configuration]:
    """Both orders of filters, groups, parts of k without steps, single elements; both ways of copies, sums again."""
    simt = {
        "block_m": 16, "block_n": 16, "block_k": 8, "thread_m": 2, "thread_n": 4, "vthread_m": 1, "vthread_n": 1,
        "lanes_m": 8, "raster": 1, "split_k": 1, "stages": 2, "pad": 1, "epilogue_fixed": 0, "min_blocks": 1,
        "masked": 1,
    }  # fmt: skip
    mma = {
        "block_m": 32, "block_n": 32, "block_k": 32, "warp_m": 16, "warp_n": 16, "raster": 1, "split_k": 1,
        "epilogue_staged": 1, "epilogue_fixed": 0, "min_blocks": 1, "swizzle": 1, "instruction": 0, "stages": 3,
        "copy": 1, "masked": 1,
    }  # fmt: skip
    half, floats = {"dtype": "float16"}, {"c": 128, "dtype": "float32"}
    made = {
        "phased": {
            "phases": (transposed(), {"raster": 2}),
            "phases, filters last": (transposed(weights="rsck", groups=2), {"split_k": 2, "stages": 1, "masked": 0}),
            "phases, parts": (transposed(k_out=5, dtype="float64"), {"split_k": 3, "vector_a": 8, "vector_c": 8}),
        },
        "phased_mma": {
            "phases": (transposed(**half), {"raster": 2}),
            "phases, filters last": (
                transposed(weights="rsck", groups=2, **half),
                {"split_k": 2, "stages": 2, "block_k": 16, "warp_m": 32, "masked": 0},
            ),
            "phases, parts": (
                transposed(k_out=5, **half),
                {"split_k": 3, "copy": 0, "stages": 2, "vector_a": 2, "vector_c": 2},
            ),
            "phases, floats": (transposed(**floats), {"instruction": 5}),
        },
    }
    return [
        Configuration(f"{group} {name}", group, "sm_87", workload, (simt if group == "phased" else mma) | values)
        for group, each in made.items()
        for name, (workload, values) in each.items()
    ]


def patch_configurations() -> list[Configuration]:
    base = {
        "block_m": 32, "block_n": 32, "warp_m": 16, "warp_n": 16, "copies": 1, "raster": 1, "split_k": 1,
        "epilogue_fixed": 0, "min_blocks": 0, "taps": 0,
    }  # fmt: skip
    half, integers = {**FIRST, "dtype": "float16"}, {**FIRST, "dtype": "int8"}
    made = {
        "any taps": (convolution(9, 64, 32, **half, groups=2), {"split_k": 2, "warp_m": 32}),
        "known taps": (convolution(9, 32, 32, **half), {"taps": 9, "block_k": 32, "raster": 2}),
        "short rows": (convolution(14, 32, 32, **half), {"taps": 9, "block_n": 64, "run": 16, "split_k": 2}),
        "stream": (convolution(9, 64, 32, **half, groups=2), {"stream": 8, "min_blocks": 1, "warp_m": 32}),
        "merged": (convolution(9, 32, 32, **half, groups=8), {"taps": 9, "merged": 4}),
        "merged, any taps": (convolution(9, 32, 48, **half, groups=8), {"block_m": 48, "merged": 8, "block_k": 64}),
        "merged bytes": (convolution(9, 64, 32, **integers, groups=8), {"block_n": 64, "run": 8, "merged": 2}),
        "bytes": (convolution(9, 36, 36, **integers), {"copies": 2}),
        "bytes, short rows": (convolution(9, 64, 32, **integers), {"block_n": 64, "run": 8}),
        "bytes, known taps": (convolution(9, 64, 32, **integers), {"taps": 9, "block_k": 64}),
    }
    return [
        Configuration(f"patch {name}", "patch", "sm_87", workload, base | values)
        for name, (workload, values) in made.items()
    ]


def strip_configurations() -> list[Configuration]:
    """Both orders of channels and of C, whole stores and single ones, one octet to a segment and several."""
    base = {"block_m": 32, "block_n": 32, "warp_m": 16, "warp_n": 32, "epilogue_fixed": 0, "min_blocks": 1}
    down = base | {"warp_m": 32, "warp_n": 16}
    odd = base | {"block_m": 48, "block_n": 16, "warp_n": 16, "vector_c": 2, "min_blocks": 2}  # filters by three warps
    small = {"h": 20, "w": 24, "k_out": 32}
    made = {
        "last": (stem(**small), base | {"vector_c": 16}),
        "first": (stem(**small | FIRST | {"r": 3, "s": 3} | padded(1)), base | {"vector_c": 16}),
        "first, single outputs": (stem(**small | FIRST | {"w": 21, "h": 22}), down | {"vector_c": 2}),
        "last, single filters": (stem(**small | {"k_out": 27, "r": 3}), odd),
        "folded": (stem(**SPEECH | {"h": 15}, dtype="bfloat16"), down | {"vector_c": 2}),
    }
    return [
        Configuration(f"strip {name}", "strip", "sm_87", workload, values) for name, (workload, values) in made.items()
    ]
