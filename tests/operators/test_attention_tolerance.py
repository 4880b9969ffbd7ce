"""The tolerance of attention passes every right kernel, and none that forgets to rescale or accumulates shorter."""

import numpy as np
import pytest

from gensor_kernels.operators import operator
from gensor_kernels.operators.attention.attention import workload
from gensor_kernels.operators.tolerance.base import check
from gensor_kernels.operators.types.dtypes import encode
from tests.programs.attention_cases import operands, tiled

SIZES = ((40, 16), (40, 77), (8, 520))


def verdict(w, arrays, values, **options):
    return check(encode(w.dtype["c"], values), operator(w.operator).expect(w, arrays, **options))


@pytest.mark.parametrize(("queries", "keys"), SIZES)
@pytest.mark.parametrize("spread", [0.5, 3.0])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("out", ["same", "float32"])
def test_right_kernels_pass(dtype, out, spread, queries, keys):
    w = workload(queries, keys, heads=2, head=64, dtype=dtype, out=dtype if out == "same" else out, causal=True)
    arrays = operands(w, keys, spread)
    for tile, split in ((16, 1), (16, 3)):
        made = tiled(w, arrays, tile, split=split)
        found = verdict(w, arrays, made)
        assert found.ok, found.message
        assert verdict(w, arrays, made, structured=True).ok


@pytest.mark.parametrize("mask", ["bool", "float16"])
def test_right_kernels_with_masks_pass(mask):
    w = workload(40, 200, batch=2, heads=4, kv_heads=2, head=64, mask=mask, out="float32")
    arrays = operands(w)
    found = verdict(w, arrays, tiled(w, arrays, 32))
    assert found.ok, found.message


NARROW = "weights in 8 bits"
WRONG = {"no rescaling": {"rescale": False}, "sums in 16 bits": {"sums": "short"}, NARROW: {"weights": "bfloat16"}}


@pytest.mark.parametrize(("queries", "keys"), SIZES[1:])
@pytest.mark.parametrize(
    ("dtype", "kind"),
    # Weights of bfloat16 have 8 bits.
    [(dtype, kind) for dtype in ("float16", "bfloat16") for kind in WRONG if (dtype, kind) != ("bfloat16", NARROW)],
)
def test_wrong_kernels_fail(dtype, kind, queries, keys):
    w = workload(queries, keys, heads=2, head=64, dtype=dtype, out="float32")
    arrays = operands(w, keys)
    options = {name: dtype if value == "short" else value for name, value in WRONG[kind].items()}
    found = verdict(w, arrays, tiled(w, arrays, 16, **options))
    assert not found.ok, found.message


@pytest.mark.parametrize("keys", [16, 100, 1000])
def test_one_key_too_few_or_too_many_fails(keys):
    w = workload(20, keys, heads=2, head=64)
    arrays = operands(w, keys)
    shorter = {name: array[:, :, :-1] if name in "bd" else array for name, array in arrays.items()}
    longer = {n: np.pad(x, ((0, 0), (0, 0), (0, n in "bd"), (0, 0))) for n, x in arrays.items()}
    for changed, count in ((shorter, keys - 1), (longer, keys + 1)):
        found = verdict(w, arrays, tiled(w.with_sizes(keys=count), changed))
        assert not found.ok, found.message
