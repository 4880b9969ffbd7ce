"""Attention in the forms in which exporters write it, and forms that are none."""

import numpy as np
import pytest

from ..models import check, draw, operators

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("emulator")
HALF = "float16"
LEAST = np.finfo(np.float16).min
HEADS = "; ".join(
    f"{name}4 = Reshape({name}, split); {name}h = Transpose<perm = {perm}>({name}4)"
    for name, perm in (("q", "[0, 2, 1, 3]"), ("k", "[0, 2, 3, 1]"), ("v", "[0, 2, 1, 3]"))
)
SCORES = f"{HEADS}; qs = Mul(qh, root); ks = Mul(kh, root); s = MatMul(qs, ks)"
MERGE = "t = Transpose<perm = [0, 2, 1, 3]>(a); y = Reshape(t, join)"
GUARD = "n = IsNaN(p); g = Where(n, zero, p); a = MatMul(g, vh)"
PRODUCT = "a = MatMul(p, vh)"
PLAIN = f"{SCORES}; p = Softmax<axis = -1>(s); {PRODUCT}"
MASKED = f"{SCORES}; m = Add(s, mask); p = Softmax<axis = -1>(m)"
#: T5's positions, with a softmax in float32.
WIDE = f"{SCORES}; m = Add(s, mask); w = Cast<to = 1>(m); o = Softmax(w); p = Cast<to = 10>(o)"
#: A condition of the caller's as a mask, as BERT has it.
PADDING = f"b = Cast<to = 9>(keep); mask = Where(b, zero, least); {MASKED}; {GUARD}"


def become(text, dtype=HALF, rows=8, keys=8, outputs=(), **more):
    """Return a graph of queries, keys and values after the rules; `more` are further constants, `keep` an input."""
    given = {name: draw(2, rows if name == "q" else keys, 32, dtype=dtype) for name in "qkv"}
    given |= {name: more.pop(name) for name in ("keep",) if name in more}
    constants = {"split": np.array([2, -1, 2, 16]), "join": np.array([2, -1, 32])}
    constants |= {"root": np.array(0.5, dtype), "zero": np.array(0, dtype)} | more
    return check(text, given, constants, outputs)


def attention_of(graph):
    (found,) = [each for each in graph.nodes if each.op == "Attention"]
    return found


@pytest.mark.parametrize("text", [PLAIN, f"{SCORES}; p = Softmax<axis = -1>(s); {GUARD}"], ids=["plain", "guarded"])
def test_scaled_queries_and_keys(text):
    graph = become(f"{text}; {MERGE}")
    assert [each.op for each in graph.nodes][-2:] == ["Attention", "Reshape"]  # a view: no copy
    found = attention_of(graph)
    assert operators(graph) == "Attention" and found.attributes["scale"] == 0.25 and found.attributes["heads_last"] == 1


def triangle(k, least):
    return np.where(np.tri(8, k=k, dtype=bool), 0, least).astype(HALF)[None, None]


@pytest.mark.parametrize(
    ("text", "mask", "inputs", "causal"),
    [
        (f"{MASKED}; {GUARD}", triangle(0, LEAST), 3, True),
        (f"{MASKED}; {GUARD}", triangle(0, -np.inf), 3, True),
        (f"{MASKED}; {PRODUCT}", triangle(1, LEAST), 4, False),
        (f"{MASKED}; {PRODUCT}", triangle(0, -5), 4, False),
        (f"{MASKED}; {PRODUCT}", np.zeros((1, 1, 1, 9), HALF), 3, False),  # hides nothing
        (f"{WIDE}; {PRODUCT}", draw(1, 2, 8, 8, dtype=HALF), 4, False),
    ],
    ids=["triangle", "triangle of infinities", "another triangle", "small bias", "zeros", "softmax in float32"],
)
def test_constant_masks(text, mask, inputs, causal):
    rows, keys = (8, 8) if mask.shape[-1] == 8 else (1, 9)
    graph = become(f"{text}; {MERGE}", rows=rows, keys=keys, mask=mask)
    found = attention_of(graph)
    assert operators(graph) == "Attention"
    assert len(found.inputs) == inputs and ("is_causal" in found.attributes) == causal


def test_padding_is_a_mask_that_a_kernel_makes():
    """No row is hidden whole."""
    keep = np.ones((2, 1, 1, 8), HALF)
    keep[0, ..., 5:] = 0
    assert operators(become(f"{PADDING}; {MERGE}", keep=keep, least=np.array(LEAST))) == "Cast + Where, Attention"


@pytest.mark.parametrize(("axis", "grouped"), [(2, True), (1, False)], ids=["each", "whole"])
def test_repeated_heads_are_read_once(axis, grouped):
    """Keys and values of one head, repeated for two heads of queries; whole tensors repeated share other heads."""
    repeats = (f"{x}u = Unsqueeze({x}, axis); {x}e = Expand({x}u, wide); {x}r = Reshape({x}e, whole)" for x in "kv")
    text = "; ".join(repeats) + "; kt = Transpose<perm = [0, 1, 3, 2]>(kr); s = MatMul(q, kt); f = Mul(s, root)"
    given = {"q": draw(2, 4, 8, 16, dtype=HALF)} | {name: draw(2, 2, 8, 16, dtype=HALF) for name in "kv"}
    constants = {"axis": np.array([axis]), "wide": np.array([2, 2, 2, 8, 16]), "whole": np.array([2, 4, 8, 16])}
    graph = check(f"{text}; p = Softmax(f); y = MatMul(p, vr)", given, constants | {"root": np.array(0.25, HALF)})
    assert ("Expand" in operators(graph)) == (not grouped)
    assert graph.shape(attention_of(graph).inputs[1]) == ((2, 2, 8, 16) if grouped else (2, 4, 8, 16))


@pytest.mark.parametrize(("more", "outputs"), [("", ["p"]), ("; z = Relu(s)", [])], ids=["shares", "scores"])
def test_what_something_else_reads_stays(more, outputs):
    graph = become(f"{PLAIN}; {MERGE}{more}", outputs=outputs)
    assert "Softmax" in operators(graph) and "Attention" not in operators(graph)


@pytest.mark.parametrize(("least", "kept"), [(np.finfo(np.float32).min, False), (-np.inf, True)])
def test_in_float32_only_a_useless_guard_disappears(least, kept):
    """With -inf a row may see no key, and the guard makes zeros of its NaN."""
    keep = np.ones((2, 1, 1, 8), np.float32)
    keep[0] = 0 if kept else 1
    graph = become(f"{PADDING}; {MERGE}", "float32", keep=keep, least=np.array(least, np.float32))
    assert ("IsNaN" in operators(graph)) == kept and "Softmax" in operators(graph)
    scores, _ = [each for each in graph.nodes if each.op == "MatMul"]
    assert [step.name for step in scores.epilogue] == ["scale", "add"]


def test_a_transposition_of_other_axes_stays():
    graph = become(f"{PLAIN}; y = Transpose<perm = [2, 0, 1, 3]>(a)")
    assert "heads_last" not in attention_of(graph).attributes and graph.nodes[-1].op == "Transpose"
