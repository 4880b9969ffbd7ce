"""linear with quantised weights: groups and shapes files; tests/public_cases draws calls."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch.functions.low_precision_matmul import QUANTISED_LINEAR, Weights
from gensor_kernels.dispatch.selection.load import class_workload
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import quantised
from gensor_tuner.build.pool import candidate
from gensor_tuner.shapes.reader import read_shapes
from tests.doubles.device import FakeDevice

FAMILY = FAMILIES["contraction_mma"]


def test_a_class_has_the_group_of_its_kernels():
    """A kernel whose rows cannot be read is built again from its Program and its class."""
    for group in quantised.GROUPS:
        w = quantised.workload(16, 64, 256, bits=4, group=group)
        program = FAMILY.starters(w, lookup("sm_87"))[0]
        constants = candidate(FAMILY, program, class_workload(w.class_key())).constants
        assert constants == candidate(FAMILY, program, w).constants


@pytest.mark.parametrize(
    ("k", "count", "group", "size"),
    [(96, 2, None, 48), (192, 2, None, 96), (96, 3, None, 32), (96, 2, 64, 64), (100, 4, 32, 32), (10, 2, None, 5)],
)
def test_the_size_of_a_group_follows_by_exact_division_or_is_given(k, count, group, size):
    x, w = np.ones((1, k), np.float16), np.ones((1, k), np.int8)
    scales = np.array([[1, 10, 3, 5][:count]], np.float16)
    wanted = sum(int(scales[0, place // size]) for place in range(k))
    parameters = Weights.of(x, w, scales, None, group)
    assert QUANTISED_LINEAR.library(FakeDevice(), (x, w, scales, None), parameters, None) == wanted
    with gensor_kernels.emulated("sm_87"):
        if size in quantised.GROUPS:
            assert gensor_kernels.linear(x, w, scales=scales, group=group) == wanted
        else:
            with pytest.raises(gensor_kernels.UnsupportedError, match="groups"):
                gensor_kernels.linear(x, w, scales=scales, group=group)


def test_arguments_that_do_not_fit():
    x, w, s = np.zeros((4, 64), np.float16), np.zeros((8, 64), np.int8), np.ones((8, 2), np.float16)
    linear = gensor_kernels.linear
    with gensor_kernels.emulated("sm_87"):
        for error, words, call in (
            (ValueError, "zeros and group belong to scales", lambda: linear(x, w, group=32)),
            (ValueError, "scales are \\(8,\\) or", lambda: linear(x, w, scales=s[:7])),
            (ValueError, "2 scales in a row do not belong to groups of 64", lambda: linear(x, w, scales=s, group=64)),
            (ValueError, "64 weights .* 3 equal groups.* group=", lambda: linear(x, w, scales=np.ones((8, 3), "f2"))),
            (TypeError, "group must be an integer, not 32.0", lambda: linear(x, w, scales=s, group=32.0)),
            (ValueError, "x is \\(..., 128\\)", lambda: linear(x, w.view(np.uint8), scales=s)),
            (TypeError, "int8 or \\(out, in / 2\\) uint8", lambda: linear(x, w.astype(np.int16), scales=s)),
            (ValueError, "zeros of shape", lambda: linear(x, w, scales=s, zeros=w)),
            (TypeError, "zeros are of the weights' kind", lambda: linear(x, w, scales=s, zeros=s)),
        ):
            with pytest.raises(error, match=words):
                call()
        with pytest.raises(gensor_kernels.UnsupportedError, match="float16 or bfloat16, got float32"):
            linear(x.astype(np.float32), w, scales=s)


def test_shapes_files(tmp_path):
    path = tmp_path / "shapes.csv"
    path.write_text(
        "op,m,n,k,dtype,dtype_b,group,zeros,trans_b\n"
        "matmul,1,64,128,fp16,int4,32,1,1\nmatmul,1,64,128,bf16,int8,0,,1\nmatmul,1,64,128,fp16,int4,48,,1\n"
        "matmul,1,64,128,fp16,int4,64,,0\nmatmul,1,64,128,fp32,int4,64,,1\n"
    )
    four, eight, group, turned, wide = list(read_shapes(path))
    assert four.workload == quantised.workload(1, 64, 128, bits=4, group=32, zeros=True)
    assert eight.workload == quantised.workload(1, 64, 128, bits=8, group=0, dtype="bfloat16")
    assert "'48' is not one of 0, 32, 64, 128" in str(group.error)
    assert "column 'trans_b'" in str(turned.error) and "float32" in wide.unsupported
