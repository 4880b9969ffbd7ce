"""Kernels of attention and rotary embeddings, caches of keys and values, and state that a model keeps."""

import numpy as np
import pytest

from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.execution.weights import Weights
from gensor_kernels.graph.ir.graph import Node
from gensor_kernels.graph.lowerings.attention import _attention
from gensor_kernels.graph.lowerings.base import Run
from gensor_kernels.graph.lowerings.caches import pages_of
from tests.public_cases import onnx_ops

from ..models import model

pytestmark = pytest.mark.usefixtures("emulator")


def attend(q, k, v, seen):
    """Attention of each row to the keys that it sees, in float64; a row that sees none gives zeros."""
    q, k, v = (np.repeat(each.astype(np.float64), q.shape[1] // each.shape[1], axis=1) for each in (q, k, v))
    scores = np.where(seen, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[3]), -np.inf)
    with np.errstate(invalid="ignore"):
        shares = np.nan_to_num(np.exp(scores - scores.max(-1, keepdims=True)))
    total = shares.sum(-1, keepdims=True)
    return shares / np.where(total == 0, 1, total) @ v


def compute_attention(q, k, v, mask, **attributes):
    """Return the result of a node, and the families of the kernels that computed it."""
    node = Node("Attention", ("q", "k", "v", "m"), ("y",), attributes)
    run = Run(Weights().on, explains=True)
    (found,) = _attention(run, node, q, k, v, mask)
    return found, [each.family for each in run.explained]


@pytest.mark.parametrize(
    ("shape", "causal", "boolean"),
    [(None, 1, True), ((8, 8), 1, True), ((8, 8), 0, False), ((2, 1, 1, 8), 1, False), ((2, 4, 8, 8), 0, True)],
)
def test_masks_are_steps_and_rows_without_keys_give_zeros(shape, causal, boolean):
    """In float32 attention is a product with scale and masks, a softmax and a product."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, heads, 8, 16)).astype(np.float32) for heads in (4, 2, 2))
    keep = np.ones((8, 8), bool) if shape is None else rng.random(shape) < 0.5
    keep[..., :1, 0] = shape is None  # with causal, the first row sees no key
    mask = None if shape is None else keep if boolean else np.where(keep, 0, -np.inf).astype(np.float32)
    found, families = compute_attention(q, k, v, mask, is_causal=causal)
    assert len(families) == 3 and None not in families
    seen = keep & np.tri(8, dtype=bool) if causal else keep
    np.testing.assert_allclose(found, attend(q, k, v, seen), 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_integers_of_a_mask_are_added(dtype):
    q, mask = np.random.default_rng(0).standard_normal((1, 2, 8, 16)).astype(dtype), np.arange(64).reshape(8, 8) % 5
    (found, _), (wanted, _) = (compute_attention(q, q, q, each) for each in (mask, mask.astype(dtype)))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("dtype", "interleaved", "heads"), [("float16", 0, 0), ("float16", 1, 3), ("float32", 0, 3)])
def test_rotary_embeddings_of_constant_tables_are_one_kernel(dtype, interleaved, heads):
    """Two nodes share the tables' rows."""
    x = np.random.default_rng(0).standard_normal((2, 5, 48) if heads else (2, 3, 5, 16)).astype(dtype)
    angles = np.arange(9)[:, None] * 100.0 ** -(np.arange(8) / 8)
    tables = {"cos": np.cos(angles).astype(dtype), "sin": np.sin(angles).astype(dtype)}
    positions = np.array([[0, 1, 2, 3, 4], [8, 3, 3, 0, 1]])
    attributes = {"interleaved": interleaved, "num_heads": heads}
    text = f"RotaryEmbedding<interleaved = {interleaved}, num_heads = {heads}>"
    inputs = {"x": (dtype, x.shape), "p": ("int64", positions.shape)}
    made = model(f"y = {text}(x, cos, sin, p); z = {text}(y, cos, sin, p)", inputs, ["y", "z"], tables, opset=24)
    found, _ = made(x, positions)
    layers = made.explain(x, positions)
    assert [(each.operators, len(each.served)) for each in layers] == [("Gather", 0)] * 2 + [("Rotary", 1)] * 2
    wide = [each.astype(np.float64) for each in (x, *tables.values())]
    wanted = onnx_ops.run("RotaryEmbedding", *wide, positions, **attributes)
    np.testing.assert_allclose(found, wanted, rtol=np.finfo(dtype).eps, atol=2 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("batch", "capacity", "causal"), [(1, 32, 0), (3, 32, 1), (1, 24, 1), (2, 24, 0), (2, 7, 1)])
def test_attention_over_the_filled_part_of_a_cache(dtype, batch, capacity, causal):
    rng = np.random.default_rng(capacity + batch)
    q = rng.standard_normal((batch, 4, 2, 16)).astype(dtype)
    k, v = (rng.standard_normal((batch, 2, capacity, 16)).astype(dtype) for _ in "kv")
    sizes = rng.integers(2, capacity + 1, batch)
    inputs = {name: (dtype, each.shape) for name, each in {"q": q, "k": k, "v": v}.items()} | {"n": ("int64", (batch,))}
    made = model(f'y = Attention<is_causal = {causal}>(q, k, v, "", "", "", n)', inputs, ["y"], opset=24)
    found = made(q, k, v, sizes)
    (layer,) = made.explain(q, k, v, sizes)
    assert found.dtype == dtype
    tolerance = 2e-3 if dtype == "float16" else 2e-6
    ends = sizes[:, None, None, None] - (np.array([[1], [0]]) if causal else 0)
    wanted = attend(q, k, v, np.arange(capacity) < ends)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    families = [each.family for each in layer.served]
    assert families == ["attention"] if dtype == "float16" else len(families) == 3


def test_a_cache_with_rows_before_heads_is_paged_without_a_copy():
    rows = np.arange(3 * 24 * 2 * 16, dtype=np.float32).reshape(3, 24, 2, 16).transpose(0, 2, 1, 3)
    for k in (rows, np.ascontiguousarray(rows), rows[:1]):
        pages = pages_of(k, k)
        assert pages.keys.shape[2] == 8 and np.shares_memory(pages.keys, k)
        for entry in range(len(k)):
            found = pages.keys[pages.table[entry]].transpose(1, 0, 2, 3).reshape(2, 24, 16)
            np.testing.assert_array_equal(found, k[entry])
    odd, whole = (np.zeros((2, extent, 2, 16), np.float32).transpose(0, 2, 1, 3) for extent in (25, 33))
    assert pages_of(odd[:, :, :24], odd[:, :, :24]) is None  # 25 rows are no multiple of a page of 8
    whole = whole[:, :, :32]
    assert pages_of(whole, whole).keys is whole


def test_a_full_cache_names_the_node():
    given = {"p": ("float32", (1, 1, 4, 8)), "u": ("float32", (1, 1, 2, 8))}
    inputs = given | {"i": ("int64", (1,))}
    scatter = model("[store] c = TensorScatter(p, u, i)", inputs, ["c"], opset=24)
    known = model("[store] c = TensorScatter(p, u, i)", given, ["c"], {"i": np.array([3])}, opset=24)
    p, u = (np.ones(inputs[name][1], np.float32) for name in "pu")
    before = p.copy()
    found = scatter(p, 2 * u, np.array([2]))
    np.testing.assert_array_equal(p, before)  # an input is not written to
    np.testing.assert_array_equal(found[0, 0, :, 0], [1, 1, 2, 2])
    with pytest.raises((ModelError, UnsupportedError), match=r"node 'store'.*(room for 4 rows|index 4 is out)"):
        scatter(p, u, np.array([3]))
    with pytest.raises(UnsupportedError, match=r"node 'store'.* has room for 4 rows: 2 do not fit after row 3"):
        known(p, u)


WIDTH, CAPACITY = 32, 12
LAYER = (
    "m = MatMul(x, w); qkv = Add(m, b); q, k, v = Split<axis = 2, num_outputs = 3>(qkv); "
    "new_keys = TensorScatter<axis = 1>(keys, k, place); new_values = TensorScatter<axis = 1>(values, v, place); "
    "seen = Add(place, one); y = Attention<is_causal = 1, q_num_heads = 2, kv_num_heads = 2>"
    '(q, new_keys, new_values, "", "", "", seen)'
)


def cached_layer(dtype, rows, capacity=CAPACITY):
    """A product for queries, keys and values, caches of the latter, and attention."""
    rng = np.random.default_rng(7)
    constants = {"w": (rng.standard_normal((WIDTH, 3 * WIDTH)) * 0.2).astype(dtype), "one": np.array([rows])}
    constants["b"] = (rng.standard_normal(3 * WIDTH) * 0.1).astype(dtype)
    cache = ("n", capacity, WIDTH)
    inputs = {"x": (dtype, ("n", rows, WIDTH)), "place": ("int64", ("n",))}
    inputs |= {"keys": (dtype, cache), "values": (dtype, cache)}
    outputs = {"y": ("n", rows, WIDTH), "new_keys": cache, "new_values": cache}
    return model(LAYER, inputs, outputs, constants, opset=24)


@pytest.mark.parametrize(
    ("dtype", "capacity", "batch"), [("float16", 12, 1), ("float16", 16, 2), ("float32", 16, 1), ("float32", 12, 2)]
)
def test_a_session_equals_calls_that_carry_the_caches(dtype, capacity, batch):
    """To the last row of its caches; the products of single tokens store in a row before them."""
    made = cached_layer(dtype, 1, capacity)
    rng = np.random.default_rng(0)
    session = made.session(n=batch)
    keys = values = np.zeros((batch, capacity, WIDTH), dtype)
    assert (session.inputs, session.outputs) == (["x", "place"], ["y"])
    for place in range(capacity):
        x, places = rng.standard_normal((batch, 1, WIDTH)).astype(dtype), np.full(batch, place)
        wanted, keys, values = made(x, places, keys, values)
        np.testing.assert_allclose(session(x, places), wanted, rtol=1e-3, atol=1e-3)
    for name, wanted in {"keys": keys, "values": values}.items():
        np.testing.assert_allclose(session.state[name], wanted, rtol=1e-3, atol=1e-3)
    layers = session.explain(x, places)
    session.reset()
    assert not session.state["keys"].any()
    with pytest.raises(ValueError, match=r"input 'place': 1 rows at \d+ do not fit: the caches hold \d+"):
        session(x, places + 1)
    operators = [layer.operators for layer in layers]
    assert "MatMulAppend + Add + Split + TensorScatter + TensorScatter" in operators
    if dtype == "float16":
        assert [len(layer.served) for layer in layers if layer.served] == [1, 1]


def test_entries_at_different_places_and_prompts_are_appended_after_the_product():
    one, three = cached_layer("float16", 1), cached_layer("float16", 3)
    rng = np.random.default_rng(1)
    for made, rows in ((one, 1), (three, 3)):
        session, caches = made.session(n=2), [np.zeros((2, CAPACITY, WIDTH), np.float16)] * 2
        for places in ([0, 4], [3, 7], [6, 9], [9, 2]):
            x = rng.standard_normal((2, rows, WIDTH)).astype(np.float16)
            wanted, *caches = made(x, np.array(places), *caches)
            np.testing.assert_allclose(session(x, place=np.array(places)), wanted, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(session.state["keys"], caches[0], rtol=1e-3, atol=1e-3)


def test_sessions_have_their_own_state_and_share_plans():
    made = cached_layer("float16", 1)
    x = np.random.default_rng(2).standard_normal((1, 1, WIDTH)).astype(np.float16)
    first, second = made.session(n=1), made.session(n=1)
    for place in range(4):
        first(x, np.array([place]))
    assert first.state["keys"].any() and not second.state["keys"].any()
    for place in range(4):
        second(x, np.array([place]))
    np.testing.assert_array_equal(first.state["keys"], second.state["keys"])
    assert all(plan.bound for session in (first, second) for plan, _ in session._plans.values())
    plain = [np.zeros((1, CAPACITY, WIDTH), np.float16)] * 2
    made(x, np.array([0]), *plain)
    assert not plain[0].any()  # a call of the model writes to none of its inputs
    assert len(made._plans) == 2
    with pytest.raises(ModelError, match=r"state 'keys' has the shape .* sizes n"):
        made.session()


def test_state_without_a_scatter_is_copied_from_its_result():
    made = model("next = Add(h, x)", dict.fromkeys("hx", ("float32", (2, 4))), ["next"])
    with pytest.raises(ModelError, match="name its state, input by result"):
        made.session()
    with pytest.raises(ModelError, match="state 'h': the model has no result 'other'"):
        made.session({"h": "other"})
    session = made.session({"h": "next"})
    for _ in range(3):
        assert session(np.ones((2, 4), np.float32)) == ()
    np.testing.assert_array_equal(session.state["h"], np.full((2, 4), 3))
    with pytest.raises(ValueError, match="input 'h' is state"):
        session(h=np.ones((2, 4), np.float32))


def test_caches_that_grow_are_refused():
    inputs = {"past": ("float32", (1, "seen", 4)), "x": ("float32", (1, 1, 4))}
    grows = model("all = Concat<axis = 1>(past, x)", inputs, ["all"])
    session = grows.session({"past": "all"}, seen=3)
    with pytest.raises(ModelError, match=r"state 'past' has the shape \(1, 3, 4\), its result 'all' \(1, 4, 4\)"):
        session(np.ones((1, 1, 4), np.float32))
