"""The backend "gensor" of `torch.compile`: graphs of Dynamo as models of fused kernels, for inference.

Whatever is not served runs eagerly, with one warning that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gensor_kernels.graph.readers.torch_memory import memory_of

from .said import forget, say, say_eager
from .served import Served

NO_GRADIENTS = (
    "gensor_kernels computes no gradients, so a module whose parameters or inputs require them runs eagerly: call it "
    "under torch.no_grad() or torch.inference_mode()"
)
SHARED = "some of its results share memory with each other"


def gensor(gm: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """Compile a graph of Dynamo: `torch.compile(module, backend="gensor")`.

    Parameters
    ----------
    gm : torch.fx.GraphModule
        Graph that Dynamo has captured.
    example_inputs : sequence
        Its inputs: parameters and buffers of the module among them.
    **options
        Options of `torch.compile`; there are none.

    Returns
    -------
    callable
        Function of the same inputs. Kernels serve it on a GPU, and inside `emulated`
        with tensors in the host's memory; elsewhere it runs eagerly.

    Raises
    ------
    TypeError
        If an option is given.

    Warns
    -----
    UserWarning
        If a graph runs eagerly: once for each reason.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU()).eval()  # doctest: +SKIP
    >>> fast = torch.compile(module, backend="gensor")  # doctest: +SKIP
    >>> with gensor_kernels.emulated("sm_87"), torch.no_grad():  # doctest: +SKIP
    ...     fast(torch.ones(3, 4)).shape
    torch.Size([3, 2])
    """
    import torch

    if options:
        raise TypeError(f"the backend gensor has no options, not {', '.join(sorted(options))}")
    if torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in example_inputs
    ):
        say(NO_GRADIENTS)
        return gm.forward
    memory = memory_of(gm)
    if memory is not None and not any(memory):
        return Served(gm)
    # Changes in place and results that share memory with inputs: AOTAutograd makes the graph functional, and applies
    # both behind it.
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def inference(inner: Any, inputs: Sequence[Any]) -> Any:
        found = memory_of(inner)
        if found is None or found.shares:
            say_eager("its fake kernels fail" if found is None else SHARED)
            return make_boxed_func(inner.forward)
        return make_boxed_func(Served(inner, nested=True))

    def eager(inner: Any, inputs: Sequence[Any]) -> Any:
        say(NO_GRADIENTS)
        return make_boxed_func(inner.forward)

    compiled: Callable[..., Any] = aot_autograd(fw_compiler=eager, inference_compiler=inference)(gm, example_inputs)
    return compiled


#: Called by `torch.compiler.reset`.
gensor.reset = forget  # type: ignore[attr-defined]
