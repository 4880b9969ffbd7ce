"""Names of operators and columns as people write them, and sentences about columns that no reader knows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gensor_kernels import spelling

#: Operators by their names in BLAS, PyTorch, ONNX, TensorFlow and cuDNN, where these mean the same.
OPS: dict[str, str] = {
    **dict.fromkeys(("gemm", "mm", "matrix_multiply"), "matmul"),
    **dict.fromkeys(("bmm", "batch_matmul", "batched_gemm", "batch_gemm"), "batched_matmul"),
    **dict.fromkeys(("mv", "matvec"), "gemv"),
    "scaled_matmul": "matmul_block_scaled",
    **dict.fromkeys(("conv", "convolution", "convolution2d"), "conv2d"),
    **dict.fromkeys(("group_conv2d", "grouped_conv"), "grouped_conv2d"),
    **dict.fromkeys(("conv_transpose", "conv_transpose2d", "transposed_conv2d", "deconv2d"), "conv2d_transpose"),
    **dict.fromkeys(("depthwise", "depthwise_conv", "dwconv", "dwconv2d"), "depthwise_conv2d"),
    **dict.fromkeys(("max_pool", "max_pooling", "max_pooling2d"), "max_pool2d"),
    **dict.fromkeys(("avg_pool", "average_pool", "average_pool2d", "average_pooling2d"), "avg_pool2d"),
    **dict.fromkeys(("global_avg_pool", "global_average_pool", "global_average_pooling2d"), "global_avg_pool2d"),
    "adaptive_avg_pool": "adaptive_avg_pool2d",
    **dict.fromkeys(("sdpa", "scaled_dot_product_attention", "flash_attention"), "attention"),
    "layer_normalization": "layernorm",
    "rms_normalization": "rmsnorm",
    **{name: f"reduce_{name}" for name in ("sum", "mean", "max", "min", "prod", "var")},
    "lstm": "rnn_lstm",
    "gru": "rnn_gru",
    "swish": "silu",
}
#: Operators that are suggested for words which do not mean exactly the same.
LIKE: dict[str, str] = {
    **dict.fromkeys(("linear", "dense", "fc", "fully_connected", "inner_product"), "matmul (with trans_b = 1)"),
    **{f"{code}gemm": f"matmul (with dtype = {name})" for code, name in (("h", "fp16"), ("s", "fp32"), ("d", "fp64"))},
    **dict.fromkeys(("grouped_gemm", "moe"), "ragged_matmul"),
    **dict.fromkeys(("scaled_mm", "scaled_gemm", "fp8_gemm"), "matmul_block_scaled, matmul"),
    **dict.fromkeys(("mha", "multi_head_attention"), "attention"),
    **dict.fromkeys(("pool", "pooling"), "max_pool2d, avg_pool2d"),
    **dict.fromkeys(("reduce", "reduction"), "reduce_sum, reduce_mean, reduce_max"),
    **dict.fromkeys(("rnn", "recurrent"), "rnn_vanilla, rnn_gru, rnn_lstm"),
    **dict.fromkeys(("norm", "batch_norm", "batchnorm"), "layernorm, rmsnorm"),
}
_PADS = "pad_top, pad_bottom, pad_left, pad_right"
#: Columns by other words for them; a word for several columns stands for all of them.
COLUMNS = {
    **dict.fromkeys(("pad", "pads", "padding"), _PADS),
    **dict.fromkeys(("stride", "strides"), "stride_h, stride_w"),
    **dict.fromkeys(("dilation", "dilations"), "dilation_h, dilation_w"),
    **dict.fromkeys(("kernel", "kernel_size", "filter_size"), "r, s"),
    **dict.fromkeys(("in_channels", "channels", "cin"), "c"),
    **dict.fromkeys(("out_channels", "filters", "cout"), "k_out"),
    **dict.fromkeys(("activation", "bias", "fusion"), "epilogue"),
    **dict.fromkeys(("precision", "data_type", "dtype_a"), "dtype"),
    **dict.fromkeys(("out_dtype", "dtype_out", "dtype_c", "output", "output_dtype"), "out"),
    **dict.fromkeys(("acc_dtype", "accumulator", "accumulate"), "acc"),
    **dict.fromkeys(("transpose_a", "ta"), "trans_a"),
    **dict.fromkeys(("transpose_b", "tb"), "trans_b"),
    **dict.fromkeys(("calls", "repeat", "repeats"), "count"),
    **dict.fromkeys(("axis", "dim", "dims"), "axes"),
    **dict.fromkeys(("data_format", "format"), "layout"),
    **dict.fromkeys(("seq_len", "seqlen", "sequence_length", "tokens"), "queries"),
    **dict.fromkeys(("head_dim", "head_size"), "head"),
    **dict.fromkeys(("num_heads", "n_heads"), "heads"),
    **dict.fromkeys(("num_kv_heads", "n_kv_heads"), "kv_heads"),
    **dict.fromkeys(("operator", "operation"), "op"),
}
#: Columns of other operators that stand for a column of an operator which does not read them.
ELSEWHERE = {"batch": "n", "group": "groups"}
#: Columns of recordings that say how a call was served (observe/record_file.py), and the name of a row.
SERVED = frozenset({"name", "tier", "part", "shapes", ""})


def misspelt(header: Iterable[str], read: Collection[str], known: Collection[str]) -> dict[str, list[str]]:
    """Return columns that are near misses of those `read` by the file's operators; others read the `known` ones."""
    given, sound = set(header), SERVED.union(read, known)
    found: dict[str, list[str]] = {}
    for column in header:
        if column in sound:
            continue
        same = spelling.find(column, (*read, "name"))
        absent = [name for name in read if name not in given]
        others = {word: meant for word, meant in COLUMNS.items() if set(meant.split(", ")) & set(absent)}
        meant = [same] if same else spelling.near(column, absent, others)
        if meant:
            found[column] = meant
    return found


def unread(notes: Mapping[str, Collection[str]], ops: Collection[str]) -> str | None:
    """Return the sentence about columns that are kept as notes: those that ops do not read, by column."""
    shown = [
        column[: spelling.LONGEST] + ("" if set(by) >= set(ops) else f" (of {spelling.listed(sorted(by)[:3])})")
        for column, by in notes.items()
        if column not in SERVED
    ]
    return f"columns that are not read: {spelling.listed(shown)}" if shown else None
