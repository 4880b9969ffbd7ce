"""Programs of contraction_wgmma, and of the families that run a rewrite before it."""

from gensor_kernels.operators.products.block_scaled import workload as block_scaled
from gensor_kernels.operators.products.gated import workload as gated
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.products.matmul_prologue import workload as prepared
from gensor_kernels.operators.products.normed import with_norm
from gensor_kernels.operators.products.quantised import workload as quantised
from gensor_kernels.operators.products.ragged import workload as ragged
from gensor_kernels.operators.types.dtypes import element_bytes
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.conv import workload as convolution
from tests.mutator.engine.configuration import Configuration


def wgmma_configurations() -> list[Configuration]:
    """Both layouts of both operands, one multiplying warpgroup and two, all store routes, a split, epilogues compiled
    in and not, sums of 8-bit floats, overlapped or not, scales per block, persistent blocks, clusters of two,
    warpgroups that alternate tiles, gates, normalised rows, and images read by their pixels."""
    nt, nn = matmul(256, 256, 256, trans_b=True), matmul(256, 256, 256)
    tn = matmul(256, 256, 256, trans_a=True, dtype="bfloat16", out="float32")
    odd, wide = matmul(255, 255, 256, trans_b=True), matmul(255, 252, 256, trans_b=True, out="float32")
    narrow = matmul(255, 272, 256, trans_b=True, dtype="int8", out="int8")
    fused = matmul(256, 256, 256, trans_b=True, epilogue="bias_relu")
    added = matmul(256, 256, 256, trans_b=True, out="float32", epilogue=("add",))
    eight = matmul(256, 256, 256, dtype="float8_e4m3fn", dtype_b="float8_e5m2", out="bfloat16", trans_b=True)
    scaled = block_scaled(256, 256, 512)
    image = convolution(n=8, h=28, w=28, c=128, k_out=128, r=3, s=3, dtype="float16")
    return [
        _wgmma("k-contiguous", nt, block_m=128, block_n=16, stages=2, raster=2),
        _wgmma("two warpgroups", nt, block_m=128, block_n=32, consumers=2, block_k=128, stages=2),
        _wgmma("n-contiguous", nn, block_n=128, stages=2, epilogue_staged=0, min_blocks=2),
        _wgmma("m-contiguous, split", tn, block_m=128, split_k=3, stages=2),
        _wgmma("split, single columns", odd, split_k=3, stages=2, epilogue_staged=0, vector_c=2),
        _wgmma("walking", nt, persistent=1, block_n=16, stages=2),
        _wgmma("pair along m", nt, cluster=1, block_n=16, stages=2),
        _wgmma("pair along n, walking", nt, cluster=2, persistent=1, block_n=16, stages=2),
        _wgmma("stored by copies", nt, persistent=1, block_n=192, stages=2, epilogue_staged=3),
        _wgmma("stored by copies, a rest", nt, persistent=1, block_m=128, block_n=72, stages=2, epilogue_staged=3),
        _wgmma("part of a box, stored by copies", nn, cluster=1, block_n=104, stages=2, epilogue_staged=3),
        _wgmma("stored by copies, 32 bits", wide, block_n=96, stages=2, epilogue_staged=3),
        _wgmma("stored by copies, 8 bits", narrow, block_n=128, block_k=128, stages=2, epilogue_staged=3),
        _wgmma("stream", tn, persistent=1, stages=2, stream=8),
        _wgmma("in turns", nt, persistent=2, block_n=16, consumers=2, stages=2, epilogue_staged=0),
        _wgmma("apart", nt, persistent=3, block_m=128, block_n=24, consumers=2, stages=3),
        _wgmma("8-bit floats", eight, block_m=128, block_n=16, block_k=128, stages=2),
        _wgmma("8-bit floats, overlapped", eight, block_m=128, block_n=16, block_k=128, stages=2, overlapped=1),
        _wgmma("scales of blocks, overlapped", scaled, block_n=48, block_k=128, stages=2, overlapped=1),
        _wgmma("scales of blocks, split", scaled, block_m=128, block_n=48, block_k=128, stages=2, split_k=2),
        _wgmma("compiled epilogue", fused, block_n=16, stages=2),
        _wgmma("operands of several lines", added, block_n=96, stages=2, epilogue_staged=0),
        _wgmma("gate", gated("bias_swiglu", 256, 128, 256, trans_b=True), block_n=16, stages=2),
        _wgmma("gate, n-contiguous", gated("reglu", 256, 128, 256), block_n=64, stages=2, cluster=2),
        _wgmma("normalised", with_norm("layernorm", odd, 2), block_n=256, stages=2, epilogue_fixed=0, vector_c=2),
        _wgmma("rows of groups", ragged(8, 256, 128, 256), block_n=64, stages=2, raster=2),
        _wgmma("rows of groups, walking", ragged(8, 256, 128, 256), block_n=64, stages=2, cluster=2, persistent=1),
        _wgmma("rows of nine stores", nt, block_n=144, stages=2),
        _wgmma("pixels", image, block_n=16, stages=2),
        _wgmma("pixels of pairs", image, cluster=2, block_n=16, stages=2),
        _wgmma("any epilogue, single columns", odd, block_n=16, stages=2, epilogue_fixed=0, vector_c=2),
    ]


def aligned_configurations() -> list[Configuration]:
    """Operands that are copied first: along their rows and across, one element at a time and several, split, one
    operand of two, batches; tiles of several boxes and of few columns."""
    odd = matmul(77, 93, 75, batch=2)
    turned = matmul(77, 92, 92, dtype="int8", trans_a=True, batch=2)
    floats, wide = matmul(77, 74, 96, dtype="float32", math="tf32"), matmul(144, 77, 80, dtype="int8", trans_a=True)
    even, rows = matmul(77, 96, 76), matmul(77, 93, 75, trans_b=True)
    plain = {"block_n": 64, "stages": 2}
    return [
        _wgmma("odd, split", odd, **plain, split_k=2, vector_c=2, group="aligned"),
        _wgmma("turned", turned, **plain, block_k=128, group="aligned"),
        _wgmma("turned, 16 bytes", wide, **plain, block_k=128, vector_c=4, group="aligned"),
        _wgmma("turned floats", floats, **plain, block_k=32, vector_c=8, group="aligned"),
        _wgmma("one of two", even, **plain, group="aligned"),
        _wgmma("boxes side by side", odd, block_n=128, stages=2, epilogue_staged=0, vector_c=2, group="aligned"),
        _wgmma("widened", matmul(77, 93, 75, dtype_b="int8"), **plain, vector_c=2, group="aligned"),
        _wgmma("narrow tiles", rows, block_m=128, block_n=16, stages=2, raster=2, vector_c=2, group="aligned"),
    ]


def packed_wgmma_configurations() -> list[Configuration]:
    """Images with channels first: one block per tile and a split of groups; clusters that share pixels, or filters;
    persistent blocks; with an epilogue and without."""
    sizes = {"n": 2, "h": 9, "w": 9, "c": 20, "k_out": 20, "r": 3, "s": 3, "layout": "nchw", "groups": 2}
    image = convolution(**sizes, dtype="float16")
    fused = convolution(**sizes, dtype="float16", epilogue="bias_relu")
    plain = {"block_n": 16, "stages": 2, "vector_c": 2, "group": "packed_wgmma"}
    return [
        _wgmma("packed pixels, split", image, **plain, split_k=2, raster=2),
        _wgmma("packed pixels of pairs", fused, **plain, block_m=128, cluster=1),
        _wgmma("packed filters of pairs, walking", image, **plain, cluster=2, persistent=1),
    ]


def floats_configurations() -> list[Configuration]:
    """float32 as a sum of parts: along the rows of both operands and across, several elements at a time and one, a
    split, clusters that share either operand, persistent blocks; the same for pixels."""
    odd = matmul(77, 93, 1005, batch=2, dtype="float32")
    even = matmul(80, 96, 1000, dtype="float32", trans_b=True)
    fused = matmul(80, 96, 1000, dtype="float32", trans_b=True, epilogue="bias_relu")
    image = {"n": 2, "h": 8, "w": 7, "k_out": 20, "r": 3, "s": 3, "dtype": "float32"}
    plain = {"stages": 2, "group": "floats_wgmma"}
    last = convolution(**image, c=116, weights="rsck")
    pixels = plain | {"block_n": 16, "vector_c": 4}
    return [
        _wgmma("parts, split", odd, **plain, block_n=16, split_k=2, vector_c=4),
        _wgmma("parts, two warpgroups", even, **plain, block_m=128, block_n=32, consumers=2, raster=2),
        _wgmma("parts of pairs", odd, **plain, block_n=16, cluster=1, epilogue_staged=0, vector_c=4),
        _wgmma("parts of pairs, walking", fused, **plain, block_m=128, block_n=16, cluster=2, persistent=1),
        _wgmma("parts, split, pairs of columns", even, **plain, block_n=16, split_k=2, epilogue_staged=0),
        _wgmma("parts of pixels, split", convolution(**image, c=113), **pixels, split_k=2, cluster=1),
        _wgmma("parts of pixels as columns", convolution(**image, c=113, layout="nchw"), **pixels, cluster=1),
        _wgmma("parts of pixels, filters last", last, **pixels, block_m=128, consumers=2),
    ]


def weights_configurations() -> list[Configuration]:
    """Weights of both sizes, every group and a single scale per column, zeros; floats; one tile to a warpgroup and two,
    one warpgroup and two, a split, epilogues compiled in and not, wide stores and single columns."""

    def make(name: str, workload: Workload, **values: int) -> Configuration:
        base = {
            "block_m": 16, "block_n": 64, "block_k": int(128 / element_bytes(dict(workload.dtypes)["b"])), "split_k": 1,
            "raster": 1, "stages": 2, "consumers": 1, "epilogue_staged": 1, "epilogue_fixed": 1,
            "vector_c": workload.align["c"], "min_blocks": 1,
        }  # fmt: skip
        return Configuration(name, "weights_wgmma", "sm_90", workload, base | values)

    plain, fours = quantised(99, 256, 512, bits=8, group=0), quantised(99, 256, 512, zeros=True)
    odd = quantised(99, 255, 512, bits=8, group=32, zeros=True, dtype="bfloat16", out="float32")
    fused = quantised(99, 256, 512, bits=8, group=64, zeros=True, epilogue=("bias", "relu"))
    return [
        make("a scale per column", plain, raster=2),
        make("two warpgroups", plain, block_m=32, block_n=128, consumers=2, stages=3, epilogue_fixed=0),
        make("groups, split", fours, split_k=2),
        make("two tiles", fused, block_n=128),
        make("single columns, split", odd, stages=3, split_k=2, epilogue_fixed=0),
        make("brains of four bits", quantised(99, 255, 512, group=0, dtype="bfloat16")),
        make("floats", matmul(77, 168, 100, dtype="float32", math="tf32", batch=2), stages=3, split_k=2),
        make("floats, two tiles", matmul(77, 168, 100, dtype="float32", math="tf32"), block_n=256, consumers=2),
    ]


def prepared_wgmma_configurations() -> list[Configuration]:
    """Operations in a launch in front: on A along k and along m, with wide accesses and single elements, a split,
    batches, blocks that walk tiles."""
    last = matmul(77, 96, 200, trans_b=True, batch=2)
    turned = matmul(72, 96, 208, trans_a=True, dtype="bfloat16", epilogue="bias_relu")
    plain = {"stages": 2, "block_n": 64, "group": "prepared_wgmma"}
    return [
        _wgmma("two vectors in front, split", prepared(("mul", "bias"), last, "float32"), **plain, split_k=2),
        _wgmma("along m in front, walking", prepared(("silu",), turned), **plain | {"block_n": 128}, persistent=1),
    ]


def _wgmma(name: str, workload: Workload, *, group: str = "wgmma", **values: int) -> Configuration:
    base = {
        "block_m": 64, "block_n": 64, "block_k": 64, "cluster": 0, "persistent": 0, "stages": 3, "consumers": 1,
        "split_k": 1, "raster": 1, "epilogue_staged": 1, "epilogue_fixed": 1, "vector_c": 16, "min_blocks": 1,
    }  # fmt: skip
    return Configuration(name, group, "sm_90", workload, base | values)
