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


#: Names of operators by the module that declares them: one declaration file, one line here.  A module's OPERATORS are
#: its operators by name, or OPERATOR its only one.
_DECLARED = {
    "products.matmul": "matmul",
    "products.gated": "swiglu bias_swiglu geglu bias_geglu geglu_tanh bias_geglu_tanh reglu bias_reglu",
    "products.ragged": "ragged_matmul",
    "products.normed": "matmul_layernorm matmul_rmsnorm",
    "products.matmul_prologue": "matmul_prologue matmul_prologue1 matmul_prologue2",
    "products.quantised": (
        "matmul_int8 matmul_int8_zeros matmul_int4 matmul_int4_zeros "
        "matmul_mxfp8 matmul_mxfp8_e5m2 matmul_mxfp4 matmul_nvfp4 "
        "scaled_matmul_mxfp8 scaled_matmul_mxfp8_e5m2 scaled_matmul_mxfp4 scaled_matmul_nvfp4"
    ),
    "products.block_scaled": "matmul_block_scaled",
    "attention.attention": (
        "attention attention_masked attention_biased attention_windowed attention_masked_windowed "
        "attention_biased_windowed attention_capped attention_masked_capped attention_biased_capped"
    ),
    "attention.sequences": (
        "attention_ragged attention_ragged_capped attention_paged attention_paged_capped "
        "attention_ragged_paged attention_ragged_paged_capped"
    ),
    "windows.conv": "conv2d conv2d_transpose",
    "windows.conv_prologue": (
        "conv2d_prologue conv2d_prologue1 conv2d_prologue2 conv2d_transpose_prologue "
        "conv2d_transpose_prologue1 conv2d_transpose_prologue2"
    ),
    "rows.reductions": (
        "reduce_sum reduce_mean reduce_max reduce_min reduce_prod argmax argmin l2_norm reduce_var logsumexp"
    ),
    "rows.softmax": "softmax log_softmax",
    "rows.scans": "cumsum cumprod",
    "rows.norms": "layernorm rmsnorm",
    "rows.elementwise": "elementwise",
    "pointwise.pointwise": " ".join(f"pointwise{count}" for count in range(1, 9)),
    "pointwise.block_formats": "quantise_mxfp8 quantise_mxfp8_e5m2 quantise_mxfp4 quantise_nvfp4",
    "windows.depthwise": "depthwise_conv2d",
    "windows.depthwise_prologue": "depthwise_conv2d_prologue depthwise_conv2d_prologue1 depthwise_conv2d_prologue2",
    "recurrent.recurrent": (
        "recurrent_lstm recurrent_lstm_peepholes recurrent_gru recurrent_rnn recurrent_lstm_quantised"
    ),
    "windows.pooling": "max_pool2d avg_pool2d",
}
#: The module of every operator by name; it is imported at first use.
MODULES: dict[str, str] = {name: module for module, names in _DECLARED.items() for name in names.split()}
#: Attention with sinks, with the logarithms of its denominators, and with both (attention/forms.py).
MODULES |= {
    f"{name}{more}": module
    for name, module in MODULES.items()
    if module.startswith("attention.") and not name.endswith("_windowed")
    for more in ("_sinks", "_lse", "_sinks_lse")
}


@cache
def operator(name: str) -> Operator:
    """Return the one declaration of a name in MODULES; UnsupportedError with similar names for another name.

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
