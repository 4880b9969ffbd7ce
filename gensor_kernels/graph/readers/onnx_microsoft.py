"""Operators of com.microsoft, which onnxruntime's optimisers write, lifted to the standard's operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .onnx_lifting import Step, foreign

if TYPE_CHECKING:
    from collections.abc import Sequence


@foreign("BiasGelu", "FastGelu", "Gelu")
def _gelu(step: Step) -> None:
    x, bias = step.given(0), step.given(1)
    tanh = "tanh" if step.node.op_type == "FastGelu" else None
    step.become("Gelu", step.add("Add", x, bias) if bias else x, approximate=tanh)


@foreign("QuickGelu")
def _quick_gelu(step: Step) -> None:
    step.become("Swish", step.given(0), alpha=step.pop("alpha", 1.702))


@foreign("LayerNormalization")
def _layer_norm(step: Step) -> None:
    """Lift a norm of onnxruntime's optimiser in a file of a version that has none."""
    step.node.domain = ""


@foreign("SimplifiedLayerNormalization")
def _rms_norm(step: Step) -> None:
    _become_norm(step, step.given(0), [step.given(1)], step.pop("axis", -1), step.pop("epsilon", 1e-5))


@foreign("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def _skip_norm(step: Step) -> None:
    """Add a residual and a bias, and normalise; the fourth result is the sum."""
    is_plain = step.node.op_type == "SkipLayerNormalization"
    x, skip, weight, *more = (step.given(place) for place in range(5 if is_plain else 4))
    total, bias = step.take(3), more[-1]
    if bias:
        x = step.add("Add", x, bias)
    step.make(total, "Add", x, skip)
    _become_norm(step, total, [weight, *more[:-1]], -1, step.pop("epsilon", 1e-12 if is_plain else 1e-6), is_plain)


def _become_norm(
    step: Step, x: str, operands: Sequence[str], axis: int, epsilon: float, has_mean: bool = False
) -> None:
    operator = "LayerNormalization" if has_mean else "RMSNormalization"
    if not has_mean and any(step.node.output[1:]):
        raise step.refusal("an inverse root as a result is not served")
    step.become(operator, x, *operands, axis=axis, epsilon=epsilon)


@foreign("EmbedLayerNormalization")
def _embedding(step: Step) -> None:
    """Add rows of up to three tables, and normalise; the second result counts the keys of each mask."""
    ids, segments, words, positions, kinds, weight, bias, mask, places = (step.given(place) for place in range(9))
    counts, total = step.take(1), step.take(2)
    batch = step.add("Shape", ids, start=0, end=1)
    if mask:
        step.make(counts, "ReduceSum", mask, step.constant([1]), keepdims=0)
    else:
        step.make(counts, "Expand", step.constant(0, np.int32), batch)
    if places:
        own = step.add("Gather", positions, places)
    else:
        length = step.add("Shape", ids, start=1, end=2)
        own = step.add("Slice", positions, step.constant([0]), length, step.constant([0]))
    parts = [step.add("Gather", words, ids), own]
    if segments:
        parts.insert(1, step.add("Gather", kinds, segments))
    for each in parts[1:-1]:
        parts[0] = step.add("Add", parts[0], each)
    step.make(total, "Add", parts[0], parts[-1])
    _become_norm(step, total, [weight, bias], -1, step.pop("epsilon", 1e-12), has_mean=True)


@foreign("FusedMatMul", "TransposeMatMul")
def _product(step: Step) -> None:
    if step.pop("transBatchA", 0) or step.pop("transBatchB", 0):
        raise step.refusal("transposed batches are not served; optimise the model without layouts")
    operands = []
    for place, name in enumerate(("transA", "transB")):
        turned = step.pop(name, 0)
        operands.append(step.given(place))
        if turned and (rank := step.rank(place)) > 1:
            operands[-1] = step.add("Transpose", operands[-1], perm=[*range(rank - 2), rank - 1, rank - 2])
    alpha = step.pop("alpha", 1.0)
    if alpha == 1:
        step.become("MatMul", *operands)
    else:
        product = step.add("MatMul", *operands)
        step.become("Mul", product, step.scalar_like(alpha, product))


#: Names of parameters of fused activations.
PARAMETERS = {"HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",)}


@foreign("FusedConv", "FusedGemm")
def _activated(step: Step) -> None:
    """Convolve, add the fourth input of a convolution, and apply the activation."""
    operator = step.node.op_type.removeprefix("Fused")
    name = step.pop("activation", "")
    given = step.pop("activation_params", [])
    given = given or [value for key in ("alpha", "beta") if (value := step.pop(f"activation_{key}")) is not None]
    step.pop("activation_gamma")
    inputs = [step.given(place) for place in range(3)]
    found = step.add(operator, *inputs, **step.attributes())
    if step.given(3):
        found = step.add("Add", found, step.given(3))
    if name == "Clip":
        step.become("Clip", found, *(step.scalar_like(each, found) for each in given))
    else:
        parameters = dict(zip(PARAMETERS.get(name, ()), given, strict=False))
        step.become(name or "Identity", found, **parameters)


@foreign("RotaryEmbedding")
def _rotary(step: Step) -> None:
    x, positions, cosine, sine = (step.given(place) for place in range(4))
    if step.pop("scale", 1.0) != 1 or step.pop("is_packed_batching", 0):
        raise step.refusal("scaled angles and packed batches are not served")
    rank, table = step.rank(0), step.extent(step.given(2), 1)
    size, heads = step.pop("rotary_embedding_dim", 0), step.pop("num_heads", 0)
    if rank == 3 and not heads:
        width = step.extent(x, 2)
        if not isinstance(width, int) or not isinstance(table, int):
            raise step.refusal("the number of heads is not known; give num_heads")
        heads = width // (2 * table)
    if step.rank(1) == 1:  # the first position of every batch entry
        axis = 1 if rank == 3 else 2
        batch, rows = step.add("Shape", x, start=0, end=1), step.add("Shape", x, start=axis, end=axis + 1)
        places = step.add("Add", positions, step.range(rows))
        positions = step.add("Expand", places, step.add("Concat", batch, rows, axis=0))
    interleaved = step.pop("interleaved", 0)
    step.become(
        "RotaryEmbedding",
        *(x, cosine, sine, positions),
        **{"interleaved": interleaved, "rotary_embedding_dim": size, "num_heads": heads},
    )


@foreign("MatMulNBits")
def _few_bits(step: Step) -> None:
    """Multiply by a matrix (n, k) of 4 or 8 bits with scales of blocks along k: its DequantizeLinear, turned."""
    a, packed, scales, zeros, order, bias = (step.given(place) for place in range(6))
    n, k, bits, block = (step.pop(name, 4 if name == "bits" else None) for name in ("N", "K", "bits", "block_size"))
    if bits not in (4, 8):
        raise step.refusal(f"weights of {bits} bits are not served, of 4 and 8 are")
    if order and (step.array(4) != np.arange(k) // block).any():
        raise step.refusal("blocks in another order (g_idx) are not served")
    blocks = -(-k // block)
    numbers = step.array(1).reshape(n, -1)
    weights = step.constant_of(f"{packed}.numbers", _numbers(numbers, bits, k))
    name = step.add("Reshape", scales, step.constant([n, blocks]))
    if zeros:
        given = step.array(3)
        if given.dtype != np.uint8:
            raise step.refusal("zero points that are no integers are not served")
        points = _numbers(given.reshape(n, -1), bits, blocks)
    else:
        points = np.full((n, blocks), 1 << (bits - 1), weights_dtype(bits))
    zero = step.constant_of(f"{packed}.zeros", points)
    wide = step.add("DequantizeLinear", weights, name, zero, axis=1, block_size=block)
    turned = step.add("Transpose", wide, perm=[1, 0])
    if bias:
        step.become("Add", step.add("MatMul", a, turned), bias)
    else:
        step.become("MatMul", a, turned)


def weights_dtype(bits: int) -> np.dtype[Any]:
    """Return the dtype of unsigned numbers of 4 or 8 bits."""
    import ml_dtypes

    return np.dtype(ml_dtypes.uint4 if bits == 4 else np.uint8)


def _numbers(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Return the first `count` numbers of each row of bytes; the lower half of a byte comes first."""
    if bits == 4:
        packed = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)
    return np.ascontiguousarray(packed[:, :count]).astype(weights_dtype(bits), copy=False)
