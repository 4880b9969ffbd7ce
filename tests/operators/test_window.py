"""Depthwise convolution and pooling as declarations; tests/public_cases compares their results with NumPy's."""

import numpy as np
import pytest

from gensor_kernels.families.core import params
from gensor_kernels.operators import operator
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.workload import View
from gensor_kernels.operators.windows import depthwise, pooling

RNG = np.random.default_rng(5)


def test_windows_in_the_padding_alone():
    more = {"pad_left": 4, "stride_h": 1, "stride_w": 1}
    x = np.full((1, 2, 2, 1), 7, np.int8)
    found = operator("max_pool2d").expect(
        pooling.workload("max_pool2d", n=1, h=2, w=2, c=1, r=1, s=2, dtype="int8", **more), {"x": x}
    )
    assert found.values[0, 0, :, 0].tolist() == [-128, -128, -128, 7, 7]
    found = operator("avg_pool2d").expect(
        pooling.workload("avg_pool2d", n=1, h=2, w=2, c=1, r=1, s=2, **more), {"x": x.astype(np.float32)}
    )
    assert found.values[0, 0, :, 0].tolist() == [0, 0, 0, 7, 7]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_short_accumulator_is_outside_the_bound(dtype):
    workload = depthwise.workload(n=1, h=40, w=40, c=8, r=7, s=7, dtype=dtype, out="float32")
    x, w = RNG.standard_normal((1, 40, 40, 8)), RNG.standard_normal((7, 7, 8))
    from gensor_kernels.operators.types.dtypes import decode, encode, round_to

    stored = {"x": encode(dtype, x), "w": encode(dtype, w)}
    x, w = (decode(dtype, stored[name]) for name in "xw")
    total = np.zeros((1, 34, 34, 8))
    for r in range(7):
        for s in range(7):
            total = round_to(dtype, total + round_to(dtype, x[:, r : r + 34, s : s + 34] * w[r, s]))
    assert not tolerance_base.check(total, operator("depthwise_conv2d").expect(workload, stored)).ok


def test_work_and_traffic_follow_from_the_declaration():
    workload = depthwise.workload(
        n=2, h=8, w=8, c=16, r=3, s=3, pad_top=1, pad_bottom=1, dtype="float16", epilogue="bias_relu6"
    )
    outputs = 2 * 8 * 6 * 16
    assert workload.flops() == outputs * 9 * 2
    assert workload.bytes_moved() == (2 * 64 * 16 + 9 * 16 + outputs + 16) * 2
    pooled = pooling.workload("max_pool2d", n=1, h=8, w=8, c=4, r=2, s=2)
    assert pooled.flops() == 16 * 4 * 4
    assert (pooled.size["stride_h"], pooled.size["stride_w"]) == (2, 2)


def test_views_give_the_class_of_how_arrays_lie():
    x = View((2, 8, 8, 16), (8 * 8 * 24, 8 * 24, 24, 1), "float16", 16)
    y = View((2, 6, 6, 16), (6 * 6 * 16, 6 * 16, 16, 1), "float16", 8)
    w = View((3, 3, 16), (48, 16, 1), "float16", 4)
    workload = depthwise.workload_from_views(x, w, y, epilogue="bias")
    assert dict(workload.alignment) == {"w": 4, "x": 16, "y": 8}
    assert dict(workload.layout) == {"w": "rsc", "x": "nhwc", "y": "nhwc"}
    planes = View((2, 8, 8, 16), (16 * 64, 8, 1, 64), "float32", 16)
    out = View((2, 4, 4, 16), (16 * 16, 4, 1, 16), "float32", 16)
    pooled = pooling.workload_from_views("max_pool2d", planes, out, layout="nchw", r=2, s=2)
    assert dict(pooled.alignment) == {"x": 4, "y": 16}


def test_geometry_is_what_kernels_are_told():
    workload = depthwise.workload(n=2, h=8, w=7, c=16, r=3, s=2, pad_top=1, pad_left=1, dtype="float16")
    declared = operator("depthwise_conv2d")
    strides = {each.name: each.strides() for each in declared.operands(workload)}
    geometry = declared.geometry(workload, strides)
    assert geometry.sizes == (7, 16, 1)
    assert geometry.batch == (1, 2, 7)
    assert len(geometry.tail) == params.TAIL_BYTES
    assert np.frombuffer(geometry.tail[:56], "<i8").tolist() == [8 * 7 * 16, 7 * 16, 16, 1, 32, 16, 1]
    assert np.frombuffer(geometry.tail[56:], "<i4").tolist() == [
        *(8, 7, 7, 7, 3, 2, 1, 1, 1, 1, 1, 1),
        *(2, 16, 0, 0, 8, 7),
    ]
