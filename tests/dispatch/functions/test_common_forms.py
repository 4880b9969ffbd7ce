"""Every public function has shipped kernels of its common forms, on every capability a database is shipped for.

Forms are types, layouts, epilogues, masks and axes at published sizes. Their arrays are allocated, never written.
"""

import math
from dataclasses import replace
from itertools import product

import ml_dtypes
import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.selection import load, tiers
from gensor_kernels.machine.arch import lookup
from tests.campaign_size import sample
from tests.database.test_pretuned import SHIPPED
from tests.dispatch.calls import PUBLIC, REDUCTIONS
from tests.public_cases.ways import describe

FIRST = "sm_90"
ARCHS = [path.stem for path in SHIPPED]
BF16 = ml_dtypes.bfloat16
HALVES, FLOATS, COMPLEX = ("f2", BF16), ("f2", BF16, "f4"), ("c8", "c16")
SCIENTIFIC = ("f8", *COMPLEX)
NARROW = "float8_e4m3fn"


def new(dtype, *shape):
    """An array that is 16-byte aligned and contiguous; memory is only reserved."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    whole = np.empty(size + 16, np.uint8)
    start = -whole.ctypes.data % 16
    return whole[start : start + size].view(dtype).reshape(shape)


def turned(dtype, *shape):
    """An array of that shape stored with its last two axes in the other order."""
    return new(dtype, *shape[:-2], shape[-1], shape[-2]).swapaxes(-1, -2)


def strided(dtype, *shape):
    """Every second element along the last axis."""
    return new(dtype, *shape[:-1], 2 * shape[-1])[..., ::2]


def image(dtype, layout, n, c, h, w):
    """An image, or weights, with channels first or last."""
    return new(dtype, *((n, c, h, w) if layout == "NCHW" else (n, h, w, c)))


def products():
    def of_sizes(dtype, m, n, k, /, a=new, b=new, **more):
        return gk.matmul, (a(dtype, m, k), b(dtype, k, n)), more

    for dtype in (*FLOATS, *SCIENTIFIC):
        yield of_sizes(dtype, 1024, 1024, 1024)
        yield of_sizes(dtype, 512, 512, 4096, a=turned)
        yield of_sizes(dtype, 1024, 1024, 1024, b=turned)
        yield of_sizes(dtype, 333, 127, 65)
        yield of_sizes(dtype, 1, 4096, 1024)
    for dtype in ("f4", *SCIENTIFIC):
        yield of_sizes(dtype, 4096, 1, 1024)
        yield of_sizes(dtype, 125, 125, 4097, a=turned)
        yield of_sizes(dtype, 333, 127, 65, b=turned)
        yield of_sizes(dtype, 333, 127, 65, a=turned, b=turned)
        yield of_sizes(dtype, 256, 128, 64, a=strided, b=strided)
    for dtype in (*FLOATS, "f8"):
        yield gk.matmul, (new(dtype, 96, 128, 64), new(dtype, 96, 64, 128)), {}
        yield of_sizes(dtype, 256, 3072, 768, bias=new(dtype, 3072), activation="gelu")
    for b in (new, turned):
        yield of_sizes("f4", 1024, 1024, 1024, b=b, precision="tf32")
        yield of_sizes("i1", 1024, 1024, 1024, b=b, dtype=np.int32)
    yield of_sizes("u1", 1024, 1024, 1024, b=turned, dtype=BF16, dtype_a=NARROW, dtype_b=NARROW)
    yield gk.matmul, (new(BF16, 128, 4096), turned("u1", 4096, 4096)), {"dtype_b": NARROW}
    yield of_sizes("f2", 128, 28672, 4096, b=turned, activation="swiglu")
    yield of_sizes("f2", 128, 768, 768, epilogue=[("add", new("f2", 128, 768)), "layernorm"])
    yield of_sizes(BF16, 128, 4096, 4096, b=turned, prologue=[("mul", new(BF16, 4096))])
    for dtype in HALVES:
        yield gk.matmul, (new(dtype, 1, 4096), gk.prepack(new(dtype, 4096, 4096).T).T), {}
    for dtype, weights in (("f2", new), (BF16, turned)):
        ends = np.arange(1, 9, dtype=np.int32) * 128
        yield gk.grouped_matmul, (new(dtype, 1024, 4096), weights(dtype, 8, 4096, 14336), ends), {"activation": "silu"}
    for rows, n, k in ((64, 2112, 7168), (4096, 7168, 2048)):
        scales = new("f4", rows, k // 128), turned("f4", k // 128, -(-n // 128))
        types = {"dtype": BF16, "dtype_a": NARROW, "dtype_b": NARROW}
        yield gk.scaled_matmul, (new("u1", rows, k), turned("u1", k, n), *scales), types


def layers():
    for dtype, rows in product(FLOATS, (1, 8, 128)):
        yield gk.linear, (new(dtype, rows, 768), new(dtype, 3072, 768), new(dtype, 3072), "gelu"), {}
    for (dtype, gate), rows in product((("f2", "swiglu"), ("f2", "geglu"), (BF16, "swiglu")), (1, 128)):
        yield gk.linear, (new(dtype, rows, 4096), new(dtype, 28672, 4096), None, gate), {}
    kinds = ("f2", "i1"), ("f2", "u1"), (BF16, "u1")
    quantised = [(*each, rows, 128) for each, rows in product(kinds, (1, 16, 512))]
    for dtype, kind, rows, group in (*quantised, ("f2", "i1", 16, None)):
        scales = new(dtype, *((4096, 4096 // group) if group else (4096,)))
        weights = new(kind, 4096, 4096 // (2 if kind == "u1" else 1))
        yield gk.linear, (new(dtype, rows, 4096), weights), {"scales": scales, "group": group}
    for dtype, steps in ((BF16, [("mul", new(BF16, 4096))]), ("f2", ["gelu"])):
        yield gk.linear, (new(dtype, 128, 4096), new(dtype, 4096, 4096)), {"prologue": steps}


def contractions():
    network = (
        ("bhid,bhjd->bhij", (4, 12, 128, 64), (4, 12, 128, 64)),
        ("bhij,bhjd->bhid", (4, 12, 128, 128), (4, 12, 128, 64)),
        ("bij,bjk->bik", (32, 128, 128), (32, 128, 128)),
    )
    science = (
        ("ij,ik->jk", (4096, 256), (4096, 256)),
        ("ij,jk->ki", (256, 256), (256, 256)),
        ("ji,kj->ik", (256, 256), (256, 256)),
        ("ijk,k->ij", (64, 64, 64), (64,)),
        ("ijk,jl->ikl", (64, 64, 64), (64, 64)),
        ("ijkl,klmn->ijmn", (16, 16, 16, 16), (16, 16, 16, 16)),
    )
    for dtypes, forms in (((*FLOATS, "f8"), network), (("f4", *SCIENTIFIC), science)):
        for dtype, (text, first, second) in product(dtypes, forms):
            yield gk.einsum, (text, new(dtype, *first), new(dtype, *second)), {}
    for dtype in COMPLEX:
        yield gk.einsum, ("ki,kj->ij", new(dtype, 1024, 256), new(dtype, 1024, 256)), {"conjugate": 0}
    pairs = (
        (gk.tensordot, (64, 16, 16), (16, 16, 64)),
        (gk.dot, (256, 256), (256, 256)),
        (gk.vdot, (1 << 20,), (1 << 20,)),
        (gk.inner, (256, 256), (256, 256)),
        (gk.outer, (1024,), (1024,)),
    )
    for (function, *shapes), dtype in product(pairs, ("f2", "f4", *SCIENTIFIC)):
        yield function, [new(dtype, *shape) for shape in shapes], {}
    for dtype in FLOATS:
        scores = gk.define("b h i d, b h j d -> b h i j", epilogue=[("scale", 0.125), "relu"])
        yield scores, [new(dtype, 4, 12, 128, 64)] * 2, {}


def images():
    def conv(dtype, layout, c, k, side, taps, groups=1, **more):
        x, w = image(dtype, layout, 8, c, side, side), image(dtype, layout, k, c // groups, taps, taps)
        keywords = {"padding": taps // 2, "groups": groups, "layout": layout, "activation": "relu"} | more
        return gk.conv2d, (x, w, new(dtype, k)), keywords

    sizes = ((64, 64, 56, 3, 1), (64, 256, 56, 1, 1), (128, 128, 56, 3, 2), (256, 256, 14, 3, 1), (512, 512, 7, 3, 1))
    stem = (3, 64, 224, 7, 2)
    for dtype, layout in (("f2", "NHWC"), ("f2", "NCHW"), (BF16, "NHWC"), ("f4", "NHWC"), ("f4", "NCHW")):
        for *own, stride in (*sizes, *((stem,) if dtype != BF16 else ())):
            yield conv(dtype, layout, *own, stride=stride)
        if dtype != BF16:
            yield conv(dtype, layout, 128, 128, 56, 3, 32)
            for side in (56, 7):
                yield conv(dtype, layout, 96, 96, side, 3, 96)
    yield conv("f4", "NHWC", 256, 256, 14, 3, precision="tf32")
    yield conv("f8", "NCHW", 64, 64, 56, 3)
    norm = [("mul", new("f2", 128)), ("bias", new("f2", 128)), "relu"]
    yield conv("f2", "NHWC", 128, 32, 28, 3, prologue=norm)
    yield gk.conv2d, (new("i1", 8, 28, 28, 128), new("i1", 128, 3, 3, 128)), {"padding": 1, "layout": "NHWC"}
    for dtype in ("f2", "f4"):
        signal = new(dtype, 1, 80, 3000), new(dtype, 512, 80, 3), new(dtype, 512)
        yield gk.conv1d, signal, {"padding": 1, "activation": "gelu"}
        yield gk.conv3d, (new(dtype, 1, 64, 16, 56, 56), new(dtype, 64, 64, 3, 3, 3)), {"padding": 1}
        for layout in ("NHWC", "NCHW"):
            for taps, padding in ((2, 0), (4, 1)):
                x, w = image(dtype, layout, 8, 256, 14, 14), image(dtype, layout, 256, 128, taps, taps)
                yield gk.conv_transpose2d, (x, w), {"stride": 2, "padding": padding, "layout": layout}
            for side in (112, 14):
                yield gk.max_pool2d, (image(dtype, layout, 8, 64, side, side), 3, 2, 1), {"layout": layout}
                yield gk.avg_pool2d, (image(dtype, layout, 8, 64, side, side), 2), {"layout": layout}
            yield gk.global_avg_pool2d, (image(dtype, layout, 8, 64, 7, 7),), {"layout": layout}


def rows():
    """Rows of a table; its columns, everything, and what is not aligned, of the types that programs do that with."""
    everywhere = ((4096, 1024), 0), ((1 << 20,), None), ((1 << 24,), None), ((333, 1001), 1), ((333, 1001), 0)
    for name, dtype in product(REDUCTIONS, (*FLOATS, "f8")):
        if dtype == BF16 and name not in ("sum", "max", "mean"):
            continue
        for shape, axis in (((4096, 1024), 1), *(everywhere if dtype in ("f4", "f8") else ())):
            yield getattr(gk, name), (new(dtype, *shape),), {"axis": axis}
    for dtype in (*FLOATS, "f8"):
        yield gk.softmax, (new(dtype, 4096, 1024), -1), {}
        yield gk.log_softmax, (new(dtype, 4096, 1024), -1), {}
        for k in (768, 4096):
            yield gk.layer_norm, (new(dtype, 128, k), k, new(dtype, k), new(dtype, k)), {}
            yield gk.rms_norm, (new(dtype, 128, k), k, new(dtype, k)), {}
    yield gk.softmax, (new("f4", 8, 128, 1024), 1), {}
    for dtype in ("f2", "f4", "f8"):
        for shape, axis in (((4096, 1024), 1), ((4096, 1024), 0), ((1 << 20,), None)):
            yield gk.cumsum, (new(dtype, *shape), axis), {}
    yield gk.cumprod, (new("f4", 4096, 1024), 1), {}


def recurrences():
    for dtype in FLOATS:
        for function, gates in ((gk.lstm, 4), (gk.gru, 3)):
            weights = new(dtype, gates * 256, 256)
            for batch in (1, 32):
                yield function, (new(dtype, 32, batch, 256), weights, weights), {}


def attentions():
    def heads(dtype, batch, own, shared, queries, keys, head):
        return new(dtype, batch, own, queries, head), *(new(dtype, batch, shared, keys, head) for _ in "kv")

    for dtype in HALVES:
        for (queries, keys), causal in product(((128, 128), (1024, 1024), (1, 1024)), (False, True)):
            yield gk.attention, heads(dtype, 1, 32, 8, queries, keys, 128), {"causal": causal}
        yield gk.attention, [new(dtype, 8, 128, 12, 64).swapaxes(1, 2)] * 3, {}  # heads after tokens
        yield gk.attention, heads(dtype, 1, 32, 8, 8192, 8192, 128), {"causal": True, "window": (4095, None)}
        yield gk.attention, heads(dtype, 1, 16, 8, 1024, 1024, 256), {"causal": True, "softcap": 50.0}
        yield gk.attention, heads(dtype, 1, 32, 8, 4096, 4096, 128), {"causal": True, "sizes": [512] * 8}
        pages = new(dtype, 2048, 8, 16, 128), new(dtype, 2048, 8, 16, 128)
        table = np.arange(2048, dtype="int32").reshape(16, 128)
        cache = {"causal": True, "key_sizes": [2048] * 16, "block_table": table}
        yield gk.attention, (new(dtype, 16, 32, 1, 128), *pages), cache
        yield gk.attention, (new(dtype, 1, 32, 1024, 128), *pages), cache | {"sizes": [64] * 16}
    for kind, shape in product(("?", "f2"), ((8, 1, 1, 128), (1, 1, 128, 128))):
        yield gk.attention, [new("f2", 8, 12, 128, 64)] * 3, {"mask": new(kind, *shape)}


def is_possible(function, arguments, arch):
    """Whether any family serves a form on a part."""
    if function is gk.scaled_matmul:
        return arch.capability == (9, 0)
    kinds = [each.dtype for each in arguments if isinstance(each, np.ndarray)]
    tensor_cores_alone = kinds[0] == BF16 and (function is gk.attention or (function is gk.linear and "u1" in kinds))
    return arch.capability >= (8, 0) or not tensor_cores_alone


@pytest.fixture(autouse=True)
def only_packaged(monkeypatch, tmp_path):
    """No kernels but the packaged ones."""
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "none.db"))
    monkeypatch.delenv("GENSOR_SITE_DB", raising=False)


@pytest.fixture(scope="module")
def requests_of_forms():
    """By description: the function, the parts on which families serve it, its explanation where FIRST is emulated, and
    its requests to the tiers."""
    found, requests = {}, []
    with pytest.MonkeyPatch.context() as patch:
        choose = tiers.choose
        patch.setattr(tiers, "choose", lambda request, library: requests.append(request) or choose(request, library))
        with gk.emulated(FIRST):
            for group in (products, layers, contractions, images, rows, recurrences, attentions):
                for function, arguments, keywords in group():
                    requests.clear()
                    explained = gk.explain(function, *arguments, **keywords)
                    parts = {name for name in ARCHS if is_possible(function, arguments, lookup(name))}
                    found[describe(function, arguments, keywords)] = function, parts, explained, list(requests)
    return found


def test_every_public_function_has_forms(requests_of_forms):
    named = {getattr(function, "__name__", "define") for function, *_ in requests_of_forms.values()}
    assert named | {"prepack", "elementwise", "quantize", "dequantize"} == PUBLIC
    assert len(requests_of_forms) > 290


def test_calls_are_served_by_shipped_kernels(requests_of_forms):
    shipped = load.read(lookup(FIRST)).kernels
    without = [
        f"{label}: tier {explained.tier}, {explained.reason}"
        for label, (_, parts, explained, _) in requests_of_forms.items()
        if FIRST in parts and not (explained.tier in (2, 3) and explained.kernel in shipped)
    ]
    assert not without, without


@pytest.mark.parametrize("name", sample(ARCHS, 2))
def test_every_capability_has_kernels_of_every_form(name, requests_of_forms):
    arch = lookup(name)
    library = load.library(arch)
    without = [
        label
        for label, (_, parts, _, requests) in requests_of_forms.items()
        if name in parts and not all(is_served(replace(each, arch=arch), library) for each in requests)
    ]
    assert not without, without


def is_served(request, library):
    """Whether the tiers find a stored kernel."""
    recorded = library.record(request.problem.workload)
    return (recorded is not None and request.allows(recorded)) or bool(tiers.candidates(request, library))
