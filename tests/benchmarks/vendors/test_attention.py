"""Attention by PyTorch's backends is the attention that is timed: its diagonals, windows, heads and sequences."""

import numpy as np
import pytest

from benchmarks.gpu.vendors.registry import FLASH, Vendors
from gensor_kernels.operators.attention import attention, sequences
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import decode
from gensor_tuner.measure.operands import Noise, Operands

from ..test_operators import session

torch = pytest.importorskip("torch")
__all__ = ["session"]

SIZES = {"heads": 4, "kv_heads": 2, "head": 16}


def forward(q, k, v, at_q, at_k, most_q, most_k, dropout, causal, debug, *, window_size_left, window_size_right):
    """Flash attention as its authors describe it: rows of (batch, rows, heads, head) or (rows, heads, head), a diagonal
    that ends at the last query and key of each sequence, and a window of keys on both sides of it."""
    assert dropout == 0.0 and not debug
    if at_q is None:
        assert (most_q, most_k) == (q.shape[1], k.shape[1])
        found = [_attended(*each, causal, window_size_left, window_size_right) for each in zip(q, k, v, strict=True)]
        return torch.stack(found), None
    assert at_q.dtype == at_k.dtype == torch.int32 and at_q[0] == at_k[0] == 0
    found = torch.full_like(q, float("nan"))  # what no sequence has is left unwritten
    for (low, high), (first, end) in zip(at_q.unfold(0, 2, 1), at_k.unfold(0, 2, 1), strict=True):
        assert high - low <= most_q and end - first <= most_k
        keys = k[first:end], v[first:end]
        found[low:high] = _attended(q[low:high], *keys, causal, window_size_left, window_size_right)
    return found, None


def _attended(q, k, v, causal, left, right):
    q, k, v = (each.transpose(0, 1).double() for each in (q, k, v))
    k, v = (each.repeat_interleave(q.shape[0] // k.shape[0], 0) for each in (k, v))
    place = torch.arange(k.shape[1]) - torch.arange(q.shape[1])[:, None] - (k.shape[1] - q.shape[1])
    hidden = torch.zeros_like(place, dtype=torch.bool)
    for bound in [0] if causal else [] if right is None else [right]:
        hidden |= place > bound
    if left is not None:
        hidden |= place < -left
    scores = (q @ k.transpose(1, 2) / q.shape[2] ** 0.5).masked_fill(hidden, -float("inf"))
    return (scores.softmax(-1).nan_to_num(0) @ v).transpose(0, 1).half()


def compared(session, workload, backend):
    """Return whether a backend's result is within the tolerance, or None where it has no call."""
    operands = Operands(session.device, workload, Noise(session.device))
    call = Vendors(session).torch.call(operands, backend=backend)
    if call is None:
        return None
    call()
    arrays = {name: block.view(np) for name, block in operands.blocks.items() if block is not operands.out}
    expected = operands.operator.expect(workload, arrays, [], integer_steps=0)
    result = call()
    assert result.shape == operands.out.shape
    bits = result.contiguous().view(torch.int16).numpy() if workload.dtype["c"] == "bfloat16" else result.numpy()
    return tolerance_base.check(bits.view(operands.out.storage), expected).ok


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, "upper_left", "lower_right"])
def test_flash_attention_is_the_backend(session, monkeypatch, dtype, causal):
    backends, seen = torch.nn.attention, []
    real = backends.sdpa_kernel
    monkeypatch.setattr(backends, "sdpa_kernel", lambda each: seen.append(each.name) or real(each))
    workload = attention.workload(24, 24, batch=2, **SIZES, dtype=dtype, causal=causal)
    assert compared(session, workload, FLASH) and set(seen) == {"FLASH_ATTENTION"}


def test_cudnn_is_named_and_refused_where_it_is_not(session):
    workload = attention.workload(24, 24, batch=2, **SIZES)
    with pytest.raises(RuntimeError):
        compared(session, workload, "cudnn")


@pytest.mark.parametrize(
    "workload",
    [
        attention.workload(24, 24, batch=2, **SIZES, causal=True, window=(7, None)),
        attention.workload(24, 40, batch=2, **SIZES, causal="lower_right", window=(7, None)),
        attention.workload(24, 40, batch=1, **SIZES, window=(5, 9)),
        attention.workload(9, 31, batch=2, **SIZES, causal="lower_right"),
        sequences.workload(5, 60, 70, **SIZES, causal="lower_right"),
        sequences.workload(5, 60, 70, **SIZES, window=(6, 3)),
        sequences.workload(3, 60, 70, **SIZES),
    ],
    ids=["window", "window_keys", "both_sides", "causal_keys", "ragged", "ragged_window", "ragged_far"],
)
def test_windows_and_sequences_are_flash_attentions_own(session, monkeypatch, workload):
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", forward)
    assert compared(session, workload, FLASH)


@pytest.mark.parametrize(
    "workload",
    [
        attention.workload(24, 24, **SIZES, softcap=True),
        attention.workload(24, 24, **SIZES, mask="bool"),
        attention.workload(24, 40, **SIZES, causal="upper_left"),
        sequences.workload(5, 1, 80, ragged=False, page_size=16, **SIZES),
    ],
    ids=["soft_cap", "mask", "upper_left_keys", "pages"],
)
def test_what_flash_attention_has_not_is_left_out(session, workload):
    assert compared(session, workload, FLASH) is None


def test_products_of_8_bit_floats(session):
    workload = matmul.workload(32, 48, 64, dtype="float8_e4m3fn", out="bfloat16", trans_b=True)
    operands = Operands(session.device, workload, Noise(session.device))
    found = Vendors(session).torch
    result = found.wide(found.call(operands)())
    a, b = (decode("float8_e4m3fn", operands.blocks[name].view(np)) for name in "ab")
    assert np.allclose(result.reshape(32, 48), (a @ b)[0], rtol=2**-7, atol=1e-2)
