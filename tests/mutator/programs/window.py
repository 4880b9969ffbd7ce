"""Programs of the families that slide windows: depthwise and grouped convolutions, poolings."""

from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.conv_prologue import workload as before_depthwise
from tests.families.workloads.window import FIRST, convolution, grouped, padded, pool
from tests.mutator.engine.configuration import Configuration


def _window(name: str, workload: Workload, arch: str = "sm_87", **values: int) -> Configuration:
    base = {"window": 0, "staged": 0, "filter_held": 0, "split": 1, "thread_h": 1, "thread_w": 1}
    ends = {"vector_a": 16, "vector_c": 16, "epilogue_fixed": 0, "min_blocks": 0}
    return Configuration(name, "window", arch, workload, base | ends | values)


def window_configurations() -> list[Configuration]:
    """Both layouts, windows compiled in and not, every way in which the threads of a plane share its staged tile."""
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
        _window("channels, shared", pool("avg_pool2d", 7, 64, 7), block_c=64, block_h=1, block_w=1, split=4),
        _window("planes", convolution(15, 9, 3, stride_h=2, **planes), block_c=2, block_h=4, block_w=8, thread_h=2,
                **single, window=3321, filter_held=1),
        _window("planes, any", maximum, block_c=2, block_h=4, block_w=4, **single),
        _window("planes, shared", pool("avg_pool2d", 7, 9, 7, layout="nchw"), block_c=4, block_h=1, block_w=1, split=8,
                **single),
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


def groups_configurations() -> list[Configuration]:
    """Both layouts, windows compiled in and not, groups of one tile of filters and of several, whole and not."""
    base = {"window": 0, "thread_c": 2, "thread_h": 1, "thread_w": 1, "epilogue_fixed": 0, "min_blocks": 0}
    half, odd = grouped(14, 6, 4, 4, dtype="float16", epilogue="bias"), grouped(9, 6, 3, 3, dtype="bfloat16")
    strided = grouped(14, 6, 4, 4, dtype="float16", stride_w=2, epilogue="bias")
    planes = grouped(12, 6, 4, 4, **FIRST, epilogue="bias_add_relu")
    tile = {"block_c": 8, "block_h": 4, "block_w": 4}
    made = {
        "channels": (strided, {**tile, "thread_w": 2, "block_w": 8, "vector_a": 8, "vector_c": 4, "window": 32}),
        "channels, any": (half, {**tile, "thread_h": 2, "thread_w": 2, "block_h": 8, "block_w": 8, "vector_a": 4,
                                 "vector_c": 2}),
        "tiles of three": (odd, {**tile, "block_c": 6, "block_h": 8, "thread_c": 3, "thread_w": 2, "block_w": 8,
                                 "vector_a": 2, "vector_c": 2, "window": 31}),
        "wide reads": (grouped(14, 6, 8, 12, 1, dtype="int8"), {**tile, "block_c": 16, "thread_c": 8, "block_h": 8,
                                                               "block_w": 2, "vector_a": 8, "vector_c": 16}),
        "planes": (planes, {**tile, "block_w": 8, "thread_w": 2, "vector_a": 4, "vector_c": 8, "window": 31}),
        "planes, any": (planes, {**tile, "block_c": 4, "thread_c": 1, "thread_w": 2, "block_w": 16, "vector_a": 4,
                                 "vector_c": 4, "epilogue_fixed": 1}),
    }  # fmt: skip
    return [
        Configuration(name, "window_groups", "sm_87", workload, base | values)
        for name, (workload, values) in made.items()
    ]
