"""Operators by name: each is a declaration over expression/expression.py, one per file."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from gensor_kernels import spelling
from gensor_kernels.errors import UnsupportedError

from . import types

if TYPE_CHECKING:
    from .declaration.operator import Operator

#: The module of every operator by name: one declaration file, one line here. A module's OPERATORS are its operators
#: by name, or OPERATOR its only one; it is imported at first use.
MODULES: dict[str, str] = {
    "matmul": "products.matmul",
    "swiglu": "products.gated",
    "bias_swiglu": "products.gated",
    "geglu": "products.gated",
    "bias_geglu": "products.gated",
    "geglu_tanh": "products.gated",
    "bias_geglu_tanh": "products.gated",
    "reglu": "products.gated",
    "bias_reglu": "products.gated",
    "ragged_matmul": "products.ragged",
    "matmul_layernorm": "products.normed",
    "matmul_rmsnorm": "products.normed",
    "matmul_prologue": "products.matmul_prologue",
    "matmul_prologue1": "products.matmul_prologue",
    "matmul_prologue2": "products.matmul_prologue",
    "matmul_int8": "products.quantised",
    "matmul_int8_zeros": "products.quantised",
    "matmul_int4": "products.quantised",
    "matmul_int4_zeros": "products.quantised",
    "matmul_block_scaled": "products.block_scaled",
    "attention": "attention.attention",
    "attention_masked": "attention.attention",
    "attention_biased": "attention.attention",
    "attention_windowed": "attention.attention",
    "attention_masked_windowed": "attention.attention",
    "attention_biased_windowed": "attention.attention",
    "attention_capped": "attention.attention",
    "attention_masked_capped": "attention.attention",
    "attention_biased_capped": "attention.attention",
    "attention_ragged": "attention.sequences",
    "attention_ragged_capped": "attention.sequences",
    "attention_paged": "attention.sequences",
    "attention_paged_capped": "attention.sequences",
    "attention_ragged_paged": "attention.sequences",
    "attention_ragged_paged_capped": "attention.sequences",
    "conv2d": "windows.conv",
    "conv2d_transpose": "windows.conv",
    "conv2d_prologue": "windows.conv_prologue",
    "conv2d_prologue1": "windows.conv_prologue",
    "conv2d_prologue2": "windows.conv_prologue",
    "conv2d_transpose_prologue": "windows.conv_prologue",
    "conv2d_transpose_prologue1": "windows.conv_prologue",
    "conv2d_transpose_prologue2": "windows.conv_prologue",
    "reduce_sum": "rows.reductions",
    "reduce_mean": "rows.reductions",
    "reduce_max": "rows.reductions",
    "reduce_min": "rows.reductions",
    "reduce_prod": "rows.reductions",
    "argmax": "rows.reductions",
    "argmin": "rows.reductions",
    "l2_norm": "rows.reductions",
    "reduce_var": "rows.reductions",
    "logsumexp": "rows.reductions",
    "softmax": "rows.softmax",
    "log_softmax": "rows.softmax",
    "layernorm": "rows.norms",
    "rmsnorm": "rows.norms",
    "elementwise": "rows.elementwise",
    "depthwise_conv2d": "windows.depthwise",
    "depthwise_conv2d_prologue": "windows.depthwise_prologue",
    "depthwise_conv2d_prologue1": "windows.depthwise_prologue",
    "depthwise_conv2d_prologue2": "windows.depthwise_prologue",
    "max_pool2d": "windows.pooling",
    "avg_pool2d": "windows.pooling",
    "global_avg_pool2d": "windows.pooling",
}


@cache
def operator(name: str) -> Operator:
    """Return the declaration of an operator.

    Parameters
    ----------
    name : str
        A name in :data:`MODULES`.

    Returns
    -------
    Operator
        The one instance of this name; its module is imported at first use.

    Raises
    ------
    UnsupportedError
        For another name; the message lists similar names.

    Examples
    --------
    >>> operator("matmul").names
    ('a', 'b', 'c')
    """
    if name not in MODULES:
        raise UnsupportedError(f"operator {spelling.unknown(name, MODULES)}")
    module = import_module(f".{MODULES[name]}", __name__)
    found: Operator = module.OPERATORS[name] if hasattr(module, "OPERATORS") else module.OPERATOR
    return found


types.find_operator = operator
