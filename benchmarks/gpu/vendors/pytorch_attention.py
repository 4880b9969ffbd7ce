"""Attention by PyTorch: by the kernel that PyTorch chooses, by flash attention alone, by cuDNN alone.

Which kernel `scaled_dot_product_attention` chooses has changed from release to release, so that `flash` and `cudnn`
name theirs. That function has no sliding window, no sequences of different lengths and no diagonal that ends at the
last key: flash attention itself has them, and is called below it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gensor_kernels.operators.attention.forms import FORMS, UNBOUNDED, WINDOW, Form
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload

from .pytorch_windows import NoCallError

if TYPE_CHECKING:
    from torch import Tensor

#: The core of a call, and how many steps of the epilogue it takes itself: none.
Main = tuple[Callable[..., Any], int]


def choose(torch: ModuleType, workload: Workload, steps: Sequence[str]) -> Main:
    """Return attention by the kernel that PyTorch chooses."""
    _expect_plain(workload)
    return _product(torch, workload), 0


def flash(torch: ModuleType, workload: Workload, steps: Sequence[str]) -> Main:
    """Return attention by PyTorch's flash attention."""
    form = _form(workload)
    if form.mask or form.capped or form.paged:
        raise NoCallError("PyTorch's flash attention has no mask, no soft cap and no pages")
    if form.windowed or (_causal(workload) and not _square(workload)):
        return _beneath(torch, workload, form), 0
    return _product(torch, workload, "FLASH_ATTENTION"), 0


def cudnn(torch: ModuleType, workload: Workload, steps: Sequence[str]) -> Main:
    """Return attention by cuDNN."""
    _expect_plain(workload)
    if _form(workload).mask:
        raise NoCallError("a mask is timed with the kernel that PyTorch chooses")
    return _product(torch, workload, "CUDNN_ATTENTION"), 0


def _expect_plain(workload: Workload) -> None:
    """Raise NoCallError for what the arguments of `scaled_dot_product_attention` cannot say."""
    form = _form(workload)
    if form.windowed:
        raise NoCallError("PyTorch's attention has neither a window nor a soft cap")
    if _causal(workload) and (form.mask or not _square(workload)):
        raise NoCallError("PyTorch's flag is for square attention without a mask")


def _form(workload: Workload) -> Form:
    if workload.operator not in FORMS:
        raise NoCallError(workload.operator)
    if facts(workload.dtype["a"]).itemsize > 2:
        raise NoCallError("kernels are of 16-bit types")
    form = FORMS[workload.operator]
    if form.sinks or form.lse:
        raise NoCallError("PyTorch's attention has no sinks, and gives no logarithms of denominators")
    return form


def _causal(workload: Workload) -> bool:
    """Whether some query does not see all keys: one query at the last key does."""
    return bool(workload.size["causal"]) and not (workload.size["queries"] == 1 and workload.size["causal"] == 1)


def _square(workload: Workload) -> bool:
    return not FORMS[workload.operator].sequences and workload.size["queries"] == workload.size["keys"]


def _product(torch: ModuleType, workload: Workload, backend: str = "") -> Callable[..., Any]:
    """Return `scaled_dot_product_attention`, by one backend if that is named."""
    size, function = workload.size, torch.nn.functional.scaled_dot_product_attention
    more = {"is_causal": _causal(workload), "enable_gqa": size["heads"] != size["kv_heads"]}

    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Any:
        return function(q, k, v, attn_mask=mask, **more)

    if not backend:
        return attention
    backends = importlib.import_module("torch.nn.attention")

    def by_backend(q: Tensor, k: Tensor, v: Tensor) -> Any:
        with backends.sdpa_kernel(getattr(backends.SDPBackend, backend)):
            return attention(q, k, v)

    return by_backend


def _beneath(torch: ModuleType, workload: Workload, form: Form) -> Callable[..., Any]:
    """Return the function below `scaled_dot_product_attention`, whose diagonal ends at the last query and key."""
    if workload.size["causal"] == 2 and not _square(workload):
        raise NoCallError("flash attention's diagonal ends at the last query and key")
    sides = [workload.size.get(side, UNBOUNDED) for side in WINDOW]
    left, right = (None if side == UNBOUNDED else side for side in sides)
    more = {"window_size_left": left, "window_size_right": right}
    forward, ends = torch.ops.aten._flash_attention_forward, list[Any]()

    def call(*given: Any) -> Any:
        return forward(*given, 0.0, _causal(workload), False, **more)[0]

    def dense(*operands: Tensor) -> Tensor:
        q, k, v = (each.transpose(1, 2) for each in operands)
        found: Tensor = call(q, k, v, None, None, q.shape[1], k.shape[1])
        return found.transpose(1, 2)

    def sequences(q: Tensor, k: Tensor, v: Tensor, of_queries: Tensor, of_keys: Tensor) -> Tensor:
        if not ends:  # the same in every call for these operands
            ends.extend(_begins(torch, each, rows.shape[2]) for each, rows in ((of_queries, q), (of_keys, k)))
        (at_q, most_q, last), (at_k, most_k, _) = ends
        q, k, v = (each[0].transpose(0, 1) for each in (q, k, v))
        found: Tensor = call(q, k, v, at_q, at_k, most_q, most_k)
        found[last:] = 0  # rows of no sequence, which flash attention leaves unwritten
        return found.transpose(0, 1)[None]

    return sequences if form.ragged else dense


def _begins(torch: ModuleType, ends: Tensor, rows: int) -> tuple[Tensor, int, int]:
    """Return where sequences begin and the last of them ends, the most rows of one, and the last end."""
    cut = ends.clamp(max=rows)
    places = torch.nn.functional.pad(cut, (1, 0)).to(torch.int32)
    return places, int((places[1:] - places[:-1]).max()), int(places[-1])
