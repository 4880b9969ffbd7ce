"""Products with a gate (swiglu and its like) or a norm of their rows: tolerance, the space, refusals.

tests/public_cases draws calls of both.
"""

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import gated, matmul, normed
from gensor_kernels.operators.rows.norms import VERIFIED_EPS
from tests.campaign_size import sample
from tests.dispatch.functions.verdicts import sum_in, verdicts
from tests.families.verified import small_is_right
from tests.public_cases.references import ACTIVATIONS

NORMS = ("layernorm", "rmsnorm")


def norm(name, x, eps):
    mean = x.mean(-1, keepdims=True) if name == "layernorm" else 0.0
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps)


def normed_product(name, m, n, k, before=2, **more):
    more.setdefault("epilogue", ("bias", "add", "mul", "bias"))
    return normed.with_norm(name, matmul.workload(m, n, k, **more), before)


# ---- declarations


@pytest.mark.parametrize("name", ["swiglu", *NORMS])
def test_the_tolerance_admits_float32_sums_and_refuses_float16_ones(name):
    def results(a, b):
        found = {}
        for dtype in ("float32", "float16"):
            total = sum_in(dtype, a.reshape(64, 512), b.reshape(512, -1)).astype(np.float64)
            first, second = np.split(total, 2, -1)
            found[dtype] = ACTIVATIONS["silu"](first) * second if name == "swiglu" else norm(name, total, VERIFIED_EPS)
        return found

    if name == "swiglu":
        w = gated.workload(name, 64, 64, 512, dtype="float16", out="float32")
    else:
        w = normed_product(name, 64, 96, 512, dtype="float16", out="float32", epilogue=(), before=0)
    assert verdicts(w, results) == {"float32": True, "float16": False}


# ---- the space

#: (operation, arguments of the Workload, family, coordinates): every copy path, epilogue and layout of B.
KERNELS = [
    ("swiglu", {"dtype": "bfloat16", "trans_b": True}, "contraction_mma", {"warp_n": 24, "block_n": 48, "stages": 2}),
    ("bias_geglu", {"dtype": "float16", "epilogue": "add"}, "contraction_mma",
     {"epilogue_staged": 0, "copy": 0, "stages": 2, "epilogue_fixed": 1}),
    ("bias_reglu", {"dtype": "float16", "trans_a": True}, "contraction_mma", {"split_k": 3}),
    ("geglu_tanh", {"dtype": "float32", "math": "tf32"}, "contraction_mma", {}),
    ("bias_swiglu", {"dtype": "float64", "trans_b": True}, "contraction_simt", {"stages": 1}),
    ("reglu", {"dtype": "float32"}, "contraction_simt", {"epilogue_staged": 1, "raster": 2}),
    ("bias_geglu_tanh", {"dtype": "float16", "trans_b": True}, "contraction_simt", {"split_k": 2}),
    ("layernorm", {"dtype": "bfloat16", "trans_b": True}, "contraction_mma", {"epilogue_staged": 2, "split_k": 1}),
    ("rmsnorm", {"dtype": "float16"}, "contraction_mma", {"epilogue_staged": 1, "split_k": 2}),
    ("rmsnorm", {"dtype": "float32", "math": "tf32"}, "contraction_mma", {"epilogue_staged": 0, "split_k": 1}),
    ("rmsnorm", {"dtype": "float64"}, "contraction_simt", {"epilogue_staged": 2, "split_k": 1}),
    ("layernorm", {"dtype": "float32"}, "contraction_simt", {"epilogue_staged": 1, "split_k": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "more", "family", "values"), sample(KERNELS, 4))
def test_kernels_pass_the_verifier(name, more, family, values):
    normed = name in NORMS
    w = normed_product(name, 64, 24, 256, **more) if normed else gated.workload(name, 64, 96, 256, **more)
    assert small_is_right(w, family, values).branches["norm" if normed else "gate"]


@pytest.mark.parametrize("family", ["contraction_mma", "contraction_simt"])
def test_rows_are_normalised_in_the_kernel_or_after_it(family):
    arch = lookup("sm_87")
    small = normed_product("layernorm", 512, 96, 256)
    for w, whole in ((small, True), (normed_product("layernorm", 512, 304, 256), False)):
        space = Space(w, arch).family(family)
        ways = next(c for c in space.coordinates if c.name == "epilogue_staged").values
        assert ways == (0, 1, 2)
        program = space.family.starters(small, arch)[0].replace(split_k=1)
        legal = {way: space.legal(space.point(program.replace(epilogue_staged=way))[None])[0] for way in ways}
        assert legal[2] == whole and legal[1]
        entries = [x.entry for x in space.family.launches(program.replace(epilogue_staged=1), w)]
        assert entries == [family, "contraction_normalise"]
        main = space.family.launches(program.replace(epilogue_staged=2), w)
        assert [x.entry for x in main] == [family]
        terms = space.explain(space.point(program.replace(epilogue_staged=2)))
        assert terms["shared_bytes"] == main[0].shared_bytes and terms["after"] == 0


# ---- calls


REFUSED = [
    ({"activation": "swiglu", "alpha": 2.0}, "only one bias"),
    ({"epilogue": ["relu", "swiglu"]}, "only one bias"),
    ({"epilogue": ["swiglu", "reglu"]}, "one gate"),
    ({"activation": "swiglu", "bias": np.zeros(3, np.float32)}, "a bias has the shape"),
    ({"epilogue": ["layernorm", "rmsnorm"]}, "one gate or norm"),
    ({"epilogue": ["layernorm", "swiglu"]}, "one gate or norm"),
    ({"epilogue": [("layernorm", 0.0)]}, "eps above 0"),
    ({"epilogue": ["layernorm"], "activation": "relu"}, "whole order"),
    ({"activation": "layernorm"}, "activation must be"),
]


def test_arguments_that_do_not_fit():
    a, b = np.zeros((2, 4), np.float32), np.zeros((4, 6), np.float32)
    with gk.emulated("sm_87"):
        for keywords, words in REFUSED:
            with pytest.raises(ValueError, match=words):
                gk.matmul(a, b, **keywords)
        with pytest.raises(ValueError, match="side by side"):
            gk.matmul(a, np.zeros((4, 5), np.float32), activation="swiglu")
        with pytest.raises(TypeError, match="real floating-point"):
            gk.linear(a.astype(np.int8), np.zeros((6, 4), np.int8), activation="swiglu")
