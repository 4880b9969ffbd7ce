"""Caches of keys and values: appending, attention over their filled part, and state that a model keeps."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.lowerings.arrays import append
from gensor_kernels.graph.lowerings.attention import paged

from .models import model, node


def softmax(x):
    shares = np.exp(x - x.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def attended(q, k, v, sizes, causal):
    """Attention of each batch entry to its first keys, in float64."""
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    found = np.zeros(q.shape)
    group = q.shape[1] // k.shape[1]
    for entry, size in enumerate(sizes):
        for head in range(q.shape[1]):
            keys, values = (each[entry, head // group, :size] for each in (k, v))
            for row in range(q.shape[2]):
                end = row + 1 + size - q.shape[2] if causal else size
                if end > 0:
                    scores = keys[:end] @ q[entry, head, row] / np.sqrt(q.shape[3])
                    found[entry, head, row] = softmax(scores) @ values[:end]
    return found


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("batch", "capacity"), [(1, 32), (3, 32), (1, 24), (2, 24), (2, 7)])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_over_the_filled_part_of_a_cache(dtype, batch, capacity, causal):
    rng = np.random.default_rng(capacity + batch)
    q = rng.standard_normal((batch, 4, 2, 16)).astype(dtype)
    k, v = (rng.standard_normal((batch, 2, capacity, 16)).astype(dtype) for _ in "kv")
    sizes = rng.integers(2, capacity + 1, batch)
    made = model(
        [node("Attention", ["q", "k", "v", "", "", "", "n"], ["y"], is_causal=causal)],
        {name: (dtype, each.shape) for name, each in {"q": q, "k": k, "v": v}.items()} | {"n": ("int64", (batch,))},
        ["y"],
        opset=24,
    )
    with gensor_kernels.emulated("sm_87"):
        found = made(q, k, v, sizes)
        (layer,) = made.explain(q, k, v, sizes)
    assert found.dtype == dtype
    tolerance = 2e-3 if dtype == "float16" else 2e-6
    np.testing.assert_allclose(found, attended(q, k, v, sizes, causal), rtol=tolerance, atol=tolerance)
    families = [each.family for each in layer.served]
    assert families == ["attention"] if dtype == "float16" else len(families) == 3


def test_a_cache_whose_rows_lie_in_front_of_its_heads_is_paged_without_a_copy():
    rows = np.arange(3 * 24 * 2 * 16, dtype=np.float32).reshape(3, 24, 2, 16)
    for k in (rows.transpose(0, 2, 1, 3), np.ascontiguousarray(rows.transpose(0, 2, 1, 3)), rows[:1, :24]):
        k = k if k.shape[1] == 2 else k.transpose(0, 2, 1, 3)
        pages = paged(k, k)
        assert pages.keys.shape[2] == 8 and np.shares_memory(pages.keys, k)
        for entry in range(len(k)):
            found = pages.keys[pages.table[entry]].transpose(1, 0, 2, 3).reshape(2, 24, 16)
            np.testing.assert_array_equal(found, k[entry])
    odd = np.zeros((2, 25, 2, 16), np.float32)[:, :24].transpose(0, 2, 1, 3)
    assert paged(odd, odd) is None  # 25 rows are no multiple of a page of 8
    whole = np.zeros((2, 33, 2, 16), np.float32)[:, :32].transpose(0, 2, 1, 3)
    assert paged(whole, whole).keys is whole


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("places", [[2, 2], [0, 5], [7, 3]])
def test_rows_are_appended_by_places_on_the_host_and_on_the_device(places, circular):
    update = np.random.default_rng(0).standard_normal((2, 3, 4))
    wanted = np.zeros((2, 8, 4))
    if not circular and max(places) > 5:
        with pytest.raises(UnsupportedError, match="node 'a'.* has room for 8 rows: 3 do not fit behind row 7"):
            append(np, wanted, update, np.array(places), False, made("a"))
        return
    for entry, place in enumerate(places):
        wanted[entry, (place + np.arange(3)) % 8] = update[entry]
    for kind in (np.asarray, Elsewhere):
        cache = np.zeros((2, 8, 4))
        append(np, cache, update, kind(np.array(places)), circular, made("a"))
        np.testing.assert_array_equal(cache, wanted)


class Elsewhere:
    """Places that are no NumPy array: those of a device, with what indexing needs of them."""

    def __init__(self, value):
        self.value = value

    def __getitem__(self, key):
        return self.value[key]


def made(name):
    from gensor_kernels.graph.ir.graph import Node

    return Node("TensorScatter", ("p", "u", "i"), ("c",), {}, name)


def test_a_full_cache_names_the_node():
    inputs = {"p": ("float32", (1, 1, 4, 8)), "u": ("float32", (1, 1, 2, 8)), "i": ("int64", (1,))}
    scatter = model([node("TensorScatter", ["p", "u", "i"], ["c"], name="store")], inputs, ["c"], opset=24)
    p, u = (np.ones(inputs[name][1], np.float32) for name in "pu")
    with gensor_kernels.emulated("sm_87"):
        before = p.copy()
        found = scatter(p, 2 * u, np.array([2]))
        np.testing.assert_array_equal(p, before)  # an input is not written to
        np.testing.assert_array_equal(found[0, 0, :, 0], [1, 1, 2, 2])
        with pytest.raises((ModelError, UnsupportedError), match="node 'store'.*room for 4 rows"):
            scatter(p, u, np.array([3]))
