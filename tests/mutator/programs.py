"""The Programs the mutator tries its mutants on: small, and together they make every site of the kernels run."""

from __future__ import annotations

from dataclasses import replace

from gensor_kernels.operators.attention.attention import workload as attention
from gensor_kernels.operators.products.gated import workload as gated
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.products.matmul_prologue import workload as prepared
from gensor_kernels.operators.products.normed import normed
from gensor_kernels.operators.products.quantised import workload as quantised
from gensor_kernels.operators.products.ragged import workload as ragged
from gensor_kernels.operators.rows.views import workload as rows
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.depthwise_prologue import workload as before_depthwise
from tests.programs.packed import packed_configurations
from tests.programs.patch import patch_configurations
from tests.programs.phased import phased_configurations
from tests.programs.strip import strip_configurations
from tests.programs.window import average, convolution, padded, pool
from tests.programs.winograd import MUTATED

from .configuration import Configuration
from .convolutions import convolution_configurations
from .gemv import gemv_programs
from .wgmma import hopper_programs

NORM = ("mul", "bias", "relu")


def _simt(name: str, workload: Workload, **values: int) -> Configuration:
    base = {
        "block_m": 16, "block_n": 32, "block_k": 8, "thread_m": 4, "thread_n": 4, "vthread_m": 1, "vthread_n": 1,
        "lanes_m": 4, "stages": 2, "pad": 0, "raster": 1, "split_k": 1, "epilogue_staged": 0, "epilogue_fixed": 0,
        "min_blocks": 0,
    }  # fmt: skip
    return Configuration(name, "simt", "sm_87", workload, base | _vectors(workload) | values)


def _mma(group: str, arch: str, name: str, workload: Workload, **values: int) -> Configuration:
    base = {
        "block_m": 32, "block_n": 32, "warp_m": 16, "warp_n": 16, "stages": 3 if group == "mma cp.async" else 2,
        "copy": int(group == "mma cp.async"), "raster": 1, "split_k": 1, "epilogue_staged": 1, "epilogue_fixed": 0,
        "min_blocks": 0, "swizzle": 1,
    }  # fmt: skip
    return Configuration(name, group, arch, workload, base | _vectors(workload) | values)


def _rows(name: str, workload: Workload, **values: int) -> Configuration:
    base = {
        "threads_k": 4, "threads_m": 8, "split_k": 1, "vector": 1, "items": 2, "keep": 0, "online": 1,
        "epilogue_fixed": 0, "min_blocks": 0,
    }  # fmt: skip
    return Configuration(name, "rows", "sm_87", workload, base | values)


def _vectors(workload: Workload) -> dict[str, int]:
    return {f"vector_{operand}": width for operand, width in workload.alignment if operand in "abc"}


def configurations() -> list[Configuration]:
    """Programs that together make every site run, in every form that changes what a shift by one means: accesses of
    several elements and of one, tiles that the threads divide evenly and not, splits, both store routes."""
    return [
        *_simt_configurations(),
        *_mma_configurations("cp.async"),
        *_mma_configurations("registers"),
        *convolution_configurations(),
        *packed_configurations(),
        *phased_configurations(),
        *patch_configurations(),
        *strip_configurations(),
        *_rows_configurations(),
        *(Configuration(*each) for each in (*gemv_programs(), *hopper_programs())),
        *_sliced_configurations(),
        *_attention_configurations("cp.async"),
        *_attention_configurations("registers"),
        *window_configurations(),
        *(Configuration(name, "winograd", "sm_87", each, values) for name, (each, values) in MUTATED.items()),
    ]


def _window(name: str, workload: Workload, arch: str = "sm_87", **values: int) -> Configuration:
    base = {"window": 0, "staged": 0, "filter_held": 0, "split": 1, "thread_h": 1, "thread_w": 1}
    ends = {"vector_a": 16, "vector_c": 16, "epilogue_fixed": 0, "min_blocks": 0}
    return Configuration(name, "window", arch, workload, base | ends | values)


def window_configurations() -> list[Configuration]:
    """Both layouts, windows compiled in and not, every way in which threads of a plane share its staged tile."""
    planes = {"layout": "nchw", **padded()}
    single = {"vector_a": 4, "vector_c": 4}
    pixels = {"block_c": 16, "block_h": 4, "block_w": 4}
    staged = {**single, "window": 3311, "staged": 1}
    depthwise = convolution(14, 64, 3, dtype="float16", **padded())
    integers = pool("max_pool2d", 14, 33, 3, stride_h=2, stride_w=1, dtype="int8", epilogue="relu", **padded())
    small = pool("avg_pool2d", 14, 9, 3, stride_h=1, stride_w=1, **planes)
    maximum = pool("max_pool2d", 14, 9, 3, stride_h=1, stride_w=1, **planes)
    behind = before_depthwise(("mul", "bias", "sigmoid"), depthwise)
    planar = before_depthwise(("bias", "sigmoid"), convolution(14, 9, 3, **planes))
    return [
        _window("channels", depthwise, **pixels | {"block_h": 8, "block_w": 8}, thread_h=2, thread_w=2, window=3311),
        _window("channels, any", depthwise, **pixels),
        _window("channels, one by one", integers, block_c=4, block_h=2, block_w=4, vector_a=1, vector_c=1, window=3321),
        _window("channels, shared", average(7, 64), block_c=64, block_h=1, block_w=1, split=4),
        _window("planes", convolution(15, 9, 3, stride_h=2, **planes), block_c=2, block_h=4, block_w=8, thread_h=2,
                **single, window=3321, filter_held=1),
        _window("planes, any", maximum, block_c=2, block_h=4, block_w=4, **single),
        _window("planes, shared", average(7, 9, layout="nchw"), block_c=4, block_h=1, block_w=1, **single, split=8),
        _window("staged, idle copiers", small, block_c=2, block_h=4, block_w=8, thread_w=2, **staged),
        _window("staged, ragged copies", maximum, block_c=32, block_h=3, block_w=2, thread_w=2, **staged),
        _window("sliding", convolution(14, 9, 5, **planes), block_c=2, block_h=4, block_w=16, thread_h=2, thread_w=2,
                **single, staged=1),
        _window("sliding, idle copiers", convolution(14, 9, 5, dtype="int8", **planes), block_c=2, block_h=6,
                block_w=32, thread_w=4, vector_a=1, vector_c=4, staged=1),
        _window("channels, prologue", behind, block_c=16, block_h=8, block_w=8, thread_h=2, thread_w=2, window=3311),
        _window("planes, any, prologue", planar, block_c=2, block_h=4, block_w=4, **single),
        _window("staged, prologue", planar, block_c=2, block_h=4, block_w=8, thread_w=2, **staged),
        _window("compiled epilogue", integers, block_c=4, block_h=2, block_w=4, vector_a=1, vector_c=1,
                epilogue_fixed=1),
    ]  # fmt: skip


def _simt_configurations() -> list[Configuration]:
    aligned, odd = matmul(256, 256, 256, dtype="float32"), matmul(255, 255, 255, dtype="float32")
    half = matmul(256, 256, 256, dtype="float16")
    integers = matmul(64, 64, 64, dtype="int8", epilogue="bias_relu_scale")
    single = matmul(256, 256, 256, dtype="complex64", math="3m", conjugate="b")
    double = matmul(255, 255, 255, dtype="complex128", trans_a=True)
    small = {"block_n": 8, "thread_m": 2, "thread_n": 2, "lanes_m": 8}
    return [
        _simt("stream", odd, **small, raster=2, stream=8, min_blocks=1),
        _simt("staged, stream", aligned, stream=8, min_blocks=1, epilogue_staged=1),
        _simt("scalar", odd, **small, raster=2),
        _simt("one buffer, split", odd, **small, stages=1, split_k=3),
        _simt("wide, split", aligned, split_k=3),
        _simt("staged, wide", half, block_k=16, thread_n=1, thread_m=8, epilogue_staged=1, lanes_m=1),
        _simt("staged, int8", matmul(255, 255, 255, dtype="int8"), epilogue_staged=1, stages=1),
        _simt("wide, uneven", aligned, block_m=48, block_k=4, thread_m=6, raster=2),
        _simt("compiled epilogue", integers, block_k=16, epilogue_fixed=1),
        _simt("three products, staged", single, form=3, epilogue_staged=1),
        _simt("complex, split", double, **small, split_k=3),
        _simt(
            "norm, whole rows", normed("layernorm", matmul(255, 7, 255, dtype="float32"), 2), **small, epilogue_staged=2
        ),
        _simt("norm", normed("layernorm", odd, 2), block_n=256, split_k=3),
        _simt("groups", ragged(8, 255, 127, 255, dtype="float32"), **small),
        _simt("gate", gated("bias_swiglu", 255, 127, 255, dtype="float32"), **small),
        _simt("prologue", prepared(NORM, odd), **small, materialised=0),
        _simt("prologue in front", prepared(NORM, aligned), split_k=3, materialised=1),
        _simt("prologue in front, scalar", prepared(("bias", "sigmoid"), odd), **small, materialised=1),
    ]


def _mma_configurations(copies: str) -> list[Configuration]:
    def mma(name: str, workload: Workload, **values: int) -> Configuration:
        return _mma(f"mma {copies}", "sm_75" if old else "sm_87", name, workload, **values)

    old = copies == "registers"
    half = matmul(256, 256, 256, dtype="float16")
    # One element per access: cp.async takes 4 bytes at least, so TF32 there.
    odd = matmul(255, 255, 255, dtype="float16") if old else matmul(255, 255, 255, dtype="float32", math="tf32")
    integers = matmul(64, 64, 64, dtype="int8", trans_b=True, epilogue="bias_relu_scale")
    first, third = (1, 4) if old else (0, 3)
    deep, scalar = {"instruction": first, "block_k": 32}, {"instruction": 1 if old else 2, "block_k": 16}
    return [
        mma("wide", half, **deep, warp_m=32, raster=2),
        mma("narrow", half, **deep | {"block_k": 16}, block_n=16, warp_n=8),
        mma("wide, split", half, **deep, split_k=3),
        mma("stream", half, **deep, stream=8, min_blocks=1),
        mma("scalar, stream", odd, **scalar, stream=8, min_blocks=1, epilogue_staged=0),
        mma("scalar", odd, **scalar),
        mma("scalar, split", odd, **scalar, split_k=3, epilogue_staged=0),
        mma("int8", integers, instruction=third, block_k=64),
        mma("compiled epilogue", integers, instruction=third, block_k=64, epilogue_fixed=1),
        _mma(f"mma {copies}", "sm_87", "floats", matmul(512, 512, 512, dtype="float32"), instruction=5, block_k=32),
        _mma(f"mma {copies}", "sm_80", "doubles", matmul(255, 255, 255, dtype="float64"), instruction=8, block_k=8),
        _mma(
            f"mma {copies}",
            "sm_80",
            "complex, four products",
            matmul(255, 255, 255, dtype="complex128"),
            instruction=8,
            block_k=8,
            form=4,
        ),
        _mma(
            f"mma {copies}",
            "sm_80",
            "complex, three products",
            matmul(255, 255, 255, dtype="complex128", math="3m", conjugate="b"),
            instruction=8,
            block_k=4,
            form=3,
            epilogue_staged=0,
            split_k=3,
        ),
        mma(
            "norm, whole rows",
            normed("layernorm", matmul(256, 32, 256), 2),
            **deep | {"block_k": 16},
            stages=2,
            epilogue_staged=2,
        ),
        mma("norm", normed("rmsnorm", half, 2), **deep),
        mma("groups", ragged(8, 256, 132, 256), **deep, vector_b=8, vector_c=8, raster=2),
        mma("gate", gated("bias_swiglu", 256, 132, 256), **deep, vector_b=8, vector_c=8),
        mma("quantised", quantised(256, 256, 256, bits=4, group=64, zeros=True), instruction=first, block_k=64),
        mma("prologue", prepared(NORM, half, "float32"), **deep, materialised=int(not old)),
        mma("prologue, scalar", prepared(("bias", "sigmoid"), odd), **scalar, materialised=int(not old)),
    ]


def _sliced_configurations() -> list[Configuration]:
    """Single elements through shared memory, and pairs straight from registers."""
    base = {"block_m": 32, "block_n": 32, "block_k": 32, "warp_m": 16, "warp_n": 16, "stages": 3, "raster": 1}
    ends = {"epilogue_staged": 1, "epilogue_fixed": 0, "min_blocks": 0, "vector_c": 8}
    odd, wide = (matmul(size, size, size, dtype="float64", math="ozaki") for size in (255, 256))
    return [
        Configuration("slices", "sliced", "sm_87", odd, base | ends | {"raster": 2, "warp_m": 32}),
        Configuration("slices, direct", "sliced", "sm_87", wide, base | ends | {"epilogue_staged": 0, "vector_c": 16}),
    ]


def _rows_configurations() -> list[Configuration]:
    """Rows and columns, one pass and two, every place to keep a row, splits of reductions and of maps."""
    along, across = ((64, 257), (1,)), ((257, 64), (0,))
    return [
        _rows("sum", rows("reduce_sum", *along, "float32")),
        _rows("sum, wide", rows("reduce_sum", (64, 256), (1,), "float16"), vector=8),
        _rows("sum, one row", rows("reduce_sum", *along, "float32"), threads_k=128, threads_m=2),
        _rows("sum, digits", rows("reduce_sum", (4, 6, 8, 10), (0, 2), "float32")),
        _rows("argmax, split", rows("argmax", *along, "float32"), split_k=3),
        _rows("columns", rows("reduce_max", *across, "float32"), vector=4),
        _rows("columns, split", rows("reduce_var", (257, 63), (0,), "float32"), split_k=3),
        _rows("columns, two passes", rows("softmax", (7, 64), (0,), "float32"), vector=4, keep=1, online=0),
        _rows("softmax, shared", rows("softmax", *along, "float32"), threads_k=64, threads_m=2, keep=2, online=0),
        _rows("softmax, split", rows("softmax", *along, "float16"), split_k=3),
        _rows("layernorm", rows("layernorm", (64, 7), (1,), "float16", epilogue="mul_bias"), keep=1, epilogue_fixed=1),
        _rows("elementwise", rows("elementwise", (64, 255), (), "float32", epilogue="relu"), items=4),
    ]


def _attention_configurations(copies: str) -> list[Configuration]:
    old = copies == "registers"

    def make(name: str, workload: Workload, **values: int) -> Configuration:
        vectors = {f"vector_{mine}": workload.align[operand] for mine, operand in zip("kvc", "bdc", strict=True)}
        base = {
            "block_q": 32, "block_k": 16, "head_tile": 32, "split_k": 1, "stages": 1 if old else 2, "swizzle": 1,
            "copy": int(not old), "warp_q": 16, "instruction": int(old), "q_registers": 1, "epilogue_staged": 1,
            "epilogue_fixed": 0, "min_blocks": 1,
        }  # fmt: skip
        return Configuration(
            name, f"attention {copies}", "sm_75" if old else "sm_87", workload, base | vectors | values
        )

    wide, keep = attention(99, head=32), attention(99, 100, head=32, mask="bool")
    # One element per access, but of K and V with cp.async, which takes 4 bytes at least.
    least = 2 if old else 4
    narrow = replace(attention(99, head=31 if old else 30), alignment={"a": 2, "b": least, "c": 2, "d": least})
    bias = attention(99, 97, head=32, mask="float16", epilogue="scale_add")
    return [
        make("wide", wide),
        make("wide, uneven", wide, head_tile=48, block_q=48, block_k=32, q_registers=0),
        make("narrow", narrow, epilogue_staged=0),
        make("split", wide, split_k=3),
        make("narrow, split", narrow, split_k=3, epilogue_staged=0, stages=1),
        make("boolean mask", keep, warp_q=32),
        make("added mask", bias, epilogue_fixed=1, stages=1),
    ]
