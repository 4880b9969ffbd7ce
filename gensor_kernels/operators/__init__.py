"""What is computed: operators as declarations over expression.py, one file each."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import UnsupportedError

if TYPE_CHECKING:
    from .declaration import Operator

#: The module of every operator by name: one declaration file, one line here. A module's OPERATORS are its operators
#: by name, or OPERATOR its only one; it is imported at first use.
MODULES: dict[str, str] = {
    "matmul": "matmul",
    "swiglu": "gated",
    "bias_swiglu": "gated",
    "geglu": "gated",
    "bias_geglu": "gated",
    "geglu_tanh": "gated",
    "bias_geglu_tanh": "gated",
    "reglu": "gated",
    "bias_reglu": "gated",
    "ragged_matmul": "ragged",
    "matmul_layernorm": "normed",
    "matmul_rmsnorm": "normed",
    "matmul_prologue": "matmul_prologue",
    "matmul_prologue1": "matmul_prologue",
    "matmul_prologue2": "matmul_prologue",
    "matmul_int8": "quantised",
    "matmul_int8_zeros": "quantised",
    "matmul_int4": "quantised",
    "matmul_int4_zeros": "quantised",
    "attention": "attention",
    "attention_masked": "attention",
    "attention_biased": "attention",
    "conv2d": "conv",
    "conv2d_transpose": "conv",
    "conv2d_prologue": "conv_prologue",
    "conv2d_prologue1": "conv_prologue",
    "conv2d_prologue2": "conv_prologue",
    "conv2d_transpose_prologue": "conv_prologue",
    "conv2d_transpose_prologue1": "conv_prologue",
    "conv2d_transpose_prologue2": "conv_prologue",
    "reduce_sum": "reductions",
    "reduce_mean": "reductions",
    "reduce_max": "reductions",
    "reduce_min": "reductions",
    "reduce_prod": "reductions",
    "argmax": "reductions",
    "argmin": "reductions",
    "l2_norm": "reductions",
    "reduce_var": "reductions",
    "logsumexp": "reductions",
    "softmax": "softmax",
    "log_softmax": "softmax",
    "layernorm": "norms",
    "rmsnorm": "norms",
    "elementwise": "elementwise",
    "depthwise_conv2d": "depthwise",
    "depthwise_conv2d_prologue": "depthwise_prologue",
    "depthwise_conv2d_prologue1": "depthwise_prologue",
    "depthwise_conv2d_prologue2": "depthwise_prologue",
    "max_pool2d": "pooling",
    "avg_pool2d": "pooling",
    "global_avg_pool2d": "pooling",
}


@cache
def operator(name: str) -> Operator:
    """The declaration called ``name``; UnsupportedError lists the choices when there is none."""
    if name not in MODULES:
        raise UnsupportedError(f"operator {name!r} is not one of {', '.join(_nearest(name))}")
    module = import_module(f".{MODULES[name]}", __name__)
    found: Operator = module.OPERATORS[name] if hasattr(module, "OPERATORS") else module.OPERATOR
    return found


def _nearest(name: str) -> list[str]:
    """The operators a name may mean, or else all but variants of others: more than a person reads in one message."""
    from difflib import get_close_matches

    return get_close_matches(name, MODULES) or [each for each in MODULES if "_" not in each]
