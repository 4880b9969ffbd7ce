"""Programs of the tensor-core and SIMT contractions, and of sliced products: matrix products and convolutions."""

from dataclasses import replace

from gensor_kernels.operators.products.block_scaled import workload as block_scaled
from gensor_kernels.operators.products.gated import workload as gated
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.products.matmul_prologue import workload as prepared
from gensor_kernels.operators.products.normed import with_norm
from gensor_kernels.operators.products.quantised import formatted
from gensor_kernels.operators.products.quantised import workload as quantised
from gensor_kernels.operators.products.ragged import workload as ragged
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.conv import workload as convolution
from gensor_kernels.operators.windows.conv_prologue import workload as before_convolution
from tests.mutator.engine.configuration import Configuration

NORM = ("mul", "bias", "relu")
SIMT = {
    "block_m": 16, "block_n": 16, "block_k": 8, "thread_m": 2, "thread_n": 2, "vthread_m": 1, "vthread_n": 1,
    "lanes_m": 4, "stages": 2, "pad": 0, "raster": 1, "split_k": 1, "epilogue_staged": 0, "epilogue_fixed": 0,
    "min_blocks": 0,
}  # fmt: skip
MMA = {
    "block_m": 32, "block_n": 32, "warp_m": 16, "warp_n": 16, "raster": 1, "split_k": 1, "epilogue_staged": 1,
    "epilogue_fixed": 0, "min_blocks": 0, "swizzle": 1,
}  # fmt: skip
COPIES = {"cp.async": {"stages": 3, "copy": 1}, "registers": {"stages": 2, "copy": 0}}


def _vectors(workload: Workload) -> dict[str, int]:
    return {f"vector_{operand}": width for operand, width in workload.alignment if operand in "abc"}


def simt_configurations() -> list[Configuration]:
    """Tiles in shared memory, one buffer and two, every store route, splits and stream-K."""

    def simt(name: str, workload: Workload, **values: int) -> Configuration:
        base = SIMT | {"block_n": 32, "thread_m": 4, "thread_n": 4} | _vectors(workload)
        return Configuration(name, "simt", "sm_87", workload, base | values)

    aligned, odd = matmul(256, 256, 256, dtype="float32"), matmul(255, 255, 255, dtype="float32")
    half, short = matmul(256, 256, 256, dtype="float16"), matmul(255, 7, 255, dtype="float32")
    integers = matmul(64, 64, 64, dtype="int8", epilogue="bias_relu_scale")
    single = matmul(256, 256, 256, dtype="complex64", math="3m", conjugate="b")
    double = matmul(255, 255, 255, dtype="complex128", trans_a=True)
    small = {"block_n": 8, "thread_m": 2, "thread_n": 2, "lanes_m": 8}
    return [
        simt("stream", odd, **small, raster=2, stream=8, min_blocks=1),
        simt("staged, stream", aligned, stream=8, min_blocks=1, epilogue_staged=1),
        simt("scalar", odd, **small, raster=2),
        simt("one buffer, split", odd, **small, stages=1, split_k=3),
        simt("wide, split", aligned, split_k=3),
        simt("staged, wide", half, block_k=16, thread_n=1, thread_m=8, epilogue_staged=1, lanes_m=1),
        simt("staged, int8", matmul(255, 255, 255, dtype="int8"), epilogue_staged=1, stages=1),
        simt("wide, uneven", aligned, block_m=48, block_k=4, thread_m=6, raster=2),
        simt("compiled epilogue", integers, block_k=16, epilogue_fixed=1),
        simt("three products, staged", single, form=3, epilogue_staged=1),
        simt("complex, split", double, **small, split_k=3),
        simt("norm, whole rows", with_norm("layernorm", short, 2), **small, epilogue_staged=2),
        simt("norm", with_norm("layernorm", odd, 2), block_n=256, split_k=3),
        simt("groups", ragged(8, 255, 127, 255, dtype="float32"), **small),
        simt("gate", gated("bias_swiglu", 255, 127, 255, dtype="float32"), **small),
        simt("prologue", prepared(NORM, odd), **small, materialised=0),
        simt("prologue in front", prepared(NORM, aligned), split_k=3, materialised=1),
        simt("prologue in front, scalar", prepared(("bias", "sigmoid"), odd), **small, materialised=1),
    ]


def mma_configurations(copies: str) -> list[Configuration]:
    """Fragments of every instruction, copied by cp.async or through registers (sm_75)."""
    old = copies == "registers"

    def mma(name: str, workload: Workload, arch: str = "sm_75" if old else "sm_87", **values: int) -> Configuration:
        base = MMA | COPIES[copies] | _vectors(workload)
        return Configuration(name, f"mma {copies}", arch, workload, base | values)

    half = matmul(256, 256, 256, dtype="float16")
    # One element per access: cp.async takes 4 bytes at least, so TF32 there.
    odd = matmul(255, 255, 255, dtype="float16") if old else matmul(255, 255, 255, dtype="float32", math="tf32")
    integers = matmul(64, 64, 64, dtype="int8", trans_b=True, epilogue="bias_relu_scale")
    four = matmul(255, 255, 255, dtype="complex128")
    three = matmul(255, 255, 255, dtype="complex128", math="3m", conjugate="b")
    whole = with_norm("layernorm", matmul(256, 32, 256), 2)
    eight_bit = matmul(256, 256, 256, dtype="float8_e4m3fn", dtype_b="float8_e5m2", trans_b=True, out="float32")
    floats = matmul(512, 512, 512, dtype="float32")
    first, third = (1, 4) if old else (0, 3)
    deep, double = {"instruction": first, "block_k": 32}, {"instruction": 8}
    scalar = {"instruction": 1 if old else 2, "block_k": 16}
    return [
        mma("wide", half, **deep, warp_m=32, raster=2),
        mma("narrow", half, **deep | {"block_k": 16}, block_n=16, warp_n=8),
        mma("tall", half, **deep, block_m=48, warp_m=48),  # converted outputs fill a slab twice
        mma("wide, split", half, **deep, split_k=3),
        mma("stream", half, **deep, stream=8, min_blocks=1),
        mma("scalar, stream", odd, **scalar, stream=8, min_blocks=1, epilogue_staged=0),
        mma("scalar", odd, **scalar),
        mma("scalar, split", odd, **scalar, split_k=3, epilogue_staged=0),
        mma("int8", integers, instruction=third, block_k=64),
        mma("compiled epilogue", integers, instruction=third, block_k=64, epilogue_fixed=1),
        mma("floats", floats, "sm_87", instruction=5, block_k=32, stages=2 if old else 3),
        mma("doubles", matmul(255, 255, 255, dtype="float64"), "sm_80", **double, block_k=8),
        mma("complex, four products", four, "sm_90", instruction=10, block_k=8, form=4),
        mma("complex, three products", three, "sm_80", **double, block_k=4, form=3, epilogue_staged=0, split_k=3),
        mma("norm, whole rows", whole, **deep | {"block_k": 16}, stages=2, epilogue_staged=2),
        mma("norm", with_norm("rmsnorm", half, 2), **deep),
        mma("groups", ragged(8, 256, 132, 256), **deep, vector_b=8, vector_c=8, raster=2),
        mma("gate", gated("bias_swiglu", 256, 132, 256), **deep, vector_b=8, vector_c=8),
        mma("quantised", quantised(256, 256, 256, bits=4, group=64, zeros=True), instruction=first, block_k=64),
        mma("prologue", prepared(NORM, half, "float32"), **deep, materialised=int(not old)),
        mma("prologue, scalar", prepared(("bias", "sigmoid"), odd), **scalar, materialised=int(not old)),
        *([] if old else [mma("8-bit floats", eight_bit, "sm_89", instruction=9, block_k=64, warp_m=32)]),
    ]


def block_configurations() -> list[Configuration]:
    """All ways to scale, with one block-scaled operand and with two, widened and multiplied as they are stored."""
    floats, short = block_scaled(64, 72, 528, dtype_b="float8_e5m2"), {"block_k": 128, "instruction": 9}
    short_rows = block_scaled(64, 72, 528, dtype="float8_e5m2", out="float32", epilogue=("bias",))
    ends = {"block_k": 64, "instruction": 0, "vector_b": 16, "vector_c": 16}
    plain = matmul(64, 72, 272, dtype="float8_e4m3fn", dtype_b="float8_e5m2", trans_b=True, out="bfloat16", batch=2)
    scaled = {"block_k": 256, "instruction": 11, "warp_n": 24, "block_n": 48}

    def blocks(name: str, workload: Workload, arch: str = "sm_87", **values: int) -> Configuration:
        return Configuration(
            name, "blocks", arch, workload, MMA | COPIES["cp.async"] | _vectors(workload) | ends | values
        )

    return [
        blocks("nvfp4", formatted(64, 72, 288, "nvfp4", dtype="bfloat16"), split_k=2),
        blocks("two of nvfp4", formatted(64, 72, 288, "nvfp4"), warp_m=32, block_k=128),
        blocks("mxfp4", formatted(64, 72, 288, "mxfp4", dtype="float16"), raster=2),
        blocks("two of mxfp8", formatted(64, 72, 288, "mxfp8"), epilogue_staged=0),
        blocks("two of mxfp8, as stored", formatted(64, 72, 288, "mxfp8"), "sm_89", instruction=9),
        # The tensor cores scale: scales in bytes and in words, two fragments of A and three of four of B.
        blocks("scaled nvfp4", formatted(64, 72, 576, "nvfp4", epilogue=("scale",)), "sm_120", **scaled),
        blocks("scaled mxfp4", formatted(64, 72, 288, "mxfp4"), "sm_120", **scaled | {"block_k": 128}, split_k=2),
        blocks("8-bit floats, scales of one", plain, "sm_120", **scaled | {"block_k": 64, "block_m": 16}),
        blocks("scaled mxfp8", formatted(64, 72, 576, "mxfp8_e5m2"), "sm_120", **scaled, warp_m=48, block_m=48),
        # Float scales: of more rows than threads, of columns of two panels, as many rows of fragments as one and three.
        blocks("floats", floats, "sm_89", **short, split_k=2),
        blocks("floats of one row of fragments", floats, "sm_120", **short | {"instruction": 11}, block_n=96, raster=2),
        blocks("floats of many rows", short_rows, "sm_89", **short, block_m=96, warp_m=48, block_n=16, warp_n=16),
    ]


def sliced_configurations() -> list[Configuration]:
    """Single elements through shared memory, and pairs directly from registers."""
    base = {"block_m": 32, "block_n": 32, "block_k": 32, "warp_m": 16, "warp_n": 16, "stages": 3, "raster": 1}
    ends = {"epilogue_staged": 1, "epilogue_fixed": 0, "min_blocks": 0, "vector_c": 8}
    odd, wide = (matmul(size, size, size, dtype="float64", math="ozaki") for size in (255, 256))
    return [
        Configuration("slices", "sliced", "sm_87", odd, base | ends | {"raster": 2, "warp_m": 32}),
        Configuration("slices, direct", "sliced", "sm_87", wide, base | ends | {"epilogue_staged": 0, "vector_c": 16}),
    ]


def convolution_configurations() -> list[Configuration]:
    """Both orders of channels, transposed and not, with and without groups, in elements and in vectors."""
    single = {"instruction": 2, "block_k": 16}  # TF32: with channels outside, cp.async moves 4 bytes
    newer = MMA | COPIES["cp.async"] | {"instruction": 0, "block_k": 32}
    older = MMA | COPIES["registers"] | {"instruction": 1, "block_k": 32}
    return [
        *_orders("simt", "sm_87", SIMT, "float32", 5),
        *_orders("mma cp.async", "sm_87", newer, "float16", 8, single),
        *_orders("mma registers", "sm_75", older, "float16", 5),
    ]


def _orders(
    group: str, arch: str, values: dict[str, int], dtype: str, c: int, single: dict[str, int] | None = None
) -> list[Configuration]:
    def made(name: str, **more: object) -> Configuration:
        own, word = values, {"dtype": dtype}
        if single and "layout" in more:
            own, word = values | single, {"dtype": "float32", "math": "tf32"}
        given = convolution(n=2, h=9, w=8, c=2 * c, k_out=2 * c, r=3, s=3, **word, **more)  # type: ignore[arg-type]
        ways = {"split_k": 2 if name == "first" else 1, "masked": int(name == "first")}
        return Configuration(f"conv {name}", group, arch, given, own | ways)

    def behind(given: Configuration) -> Configuration:
        image = before_convolution(("mul", "bias", "sigmoid"), given.workload)
        return replace(given, name=f"{given.name} prologue", workload=image, values=given.values | {"materialised": 0})

    inlined = [] if single else [behind(made("last", groups=2)), behind(made("first", layout="nchw"))]
    return [
        *inlined,
        made("last", groups=2),
        made("first", layout="nchw"),
        made("transposed last", transposed=True),
        made("transposed first", layout="nchw", transposed=True, groups=2),
    ]
