"""Epilogue operations: names, codes and float64 references."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gensor_kernels.operators.types.epilogue import MAX_STEPS, OPERATIONS, Step, apply, join, parse


@given(st.lists(st.sampled_from(sorted(OPERATIONS)), max_size=MAX_STEPS))
def test_parse_inverts_join_up_to_the_longest_match(names):
    parsed = parse(join(names))
    assert join(parsed) == join(names)
    if ("gelu", "tanh") not in list(itertools.pairwise(names)):
        assert parsed == tuple(names)


def test_parse_of_shapes_csv_words():
    assert parse("none") == parse("") == ()
    assert parse("bias_add_relu") == ("bias", "add", "relu")
    assert parse("bias_gelu_tanh") == ("bias", "gelu_tanh")
    assert parse("scale_mask") == ("scale", "mask")


def test_codes_are_one_to_thirteen():
    assert [operation.code for operation in OPERATIONS.values()] == list(range(1, 14))


SCALAR = {
    "relu": lambda v: max(v, 0.0),
    "relu6": lambda v: min(max(v, 0.0), 6.0),
    "gelu": lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))),
    "gelu_tanh": lambda v: 0.5 * v * (1 + math.tanh(0.7978845608028654 * (v + 0.044715 * v**3))),
    "silu": lambda v: v / (1 + math.exp(-v)),
    "tanh": math.tanh,
    "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
}


@pytest.mark.parametrize("name", sorted(SCALAR))
def test_activations_and_their_tight_lipschitz_constants(name):
    values = np.linspace(-9, 9, 401)
    expected = [SCALAR[name](v) for v in values]
    np.testing.assert_allclose(apply(values, [Step(name)], "float32"), expected, rtol=1e-13, atol=1e-14)
    assert np.isnan(apply(np.array([np.nan]), [Step(name)], "float32")).all()
    values = np.linspace(-12, 12, 200_001)
    slope = np.abs(np.diff(apply(values, [Step(name)], "float32")) / np.diff(values)).max()
    assert 0.99 * slope <= OPERATIONS[name].lipschitz
    assert OPERATIONS[name].lipschitz <= 1.02 * slope


def test_operands_and_scalars_apply_in_order():
    values = np.array([[1.0, -2.0], [3.0, 4.0]])
    steps = [
        Step("scale", scalar=2.0),
        Step("bias", np.array([10.0, 20.0])),
        Step("mul", np.array([[1.0], [2.0]])),
        Step("mask", np.array([[True, False], [True, True]]), -5.0),
    ]
    np.testing.assert_array_equal(apply(values, steps, "float32"), [[12.0, -5.0], [32.0, 56.0]])


def test_cast_rounds_to_the_output_type():
    assert apply(np.array(1 + 2.0**-11), [Step("cast")], "float16") == 1.0
    assert apply(np.array(1 + 2.0**-8), [Step("cast")], "bfloat16") == 1.0
    assert apply(np.array(1 + 3 * 2.0**-8), [Step("cast")], "bfloat16") == 1 + 2 * 2.0**-7
