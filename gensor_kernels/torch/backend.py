"""The backend "gensor" of `torch.compile`: graphs of Dynamo as models of fused kernels, for inference.

Whatever is not served runs eagerly, with one warning that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gensor_kernels.graph.ir.options import Options
from gensor_kernels.graph.readers.torch_module import memory_of, torch_options
from gensor_kernels.shown import shown

from .served import Served, forget, say, say_eager
from .tracing import torch_itself

if TYPE_CHECKING:
    import torch

NO_GRADIENTS = (
    "gensor_kernels computes no gradients, so a module whose parameters or inputs require them runs eagerly: call it "
    "under torch.no_grad() or torch.inference_mode()"
)
SHARED = "some of its results share memory with each other"


def gensor(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of Dynamo: `torch.compile(module, backend="gensor")`.

    Parameters
    ----------
    gm : torch.fx.GraphModule
        Graph that Dynamo has captured.
    example_inputs : sequence
        Its inputs: parameters and buffers of the module among them.
    options : dict, optional
        Options of `torch.compile`: `dtype` and `weights`, as `load` takes them, such as
        `{"dtype": "float16"}`.
    mode : str, optional
        Mode of `torch.compile`; there is only "default".

    Returns
    -------
    callable
        Function of the same inputs. Kernels serve it on a GPU, and inside `emulated`
        with tensors in the host's memory; elsewhere it runs eagerly.

    Raises
    ------
    ValueError
        If an option or mode is not known, or an option has another value than `load` takes.
        `torch.compile` raises it as its BackendCompilerFailed.

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
    torch = torch_itself()
    chosen = _options(options or {}, mode)
    if torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in example_inputs
    ):
        say(NO_GRADIENTS)
        return gm.forward
    memory = memory_of(gm)
    if memory is not None and not any(memory):
        return Served(gm, chosen)
    # Changes in place and results that share memory with inputs: AOTAutograd makes the graph functional, and applies
    # both after it.
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def inference(inner: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        found = memory_of(inner)
        if found is None or found.shares:
            say_eager("its fake kernels fail" if found is None else SHARED)
            return make_boxed_func(inner.forward)
        return make_boxed_func(Served(inner, chosen, nested=True))

    def eager(inner: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        say(NO_GRADIENTS)
        return make_boxed_func(inner.forward)

    compiled: Callable[..., Any] = aot_autograd(fw_compiler=eager, inference_compiler=inference)(gm, example_inputs)
    return compiled


def _options(given: Mapping[str, Any], mode: str | None) -> Options:
    """Return the options of `torch.compile` as those of a model; ValueError where they are none."""
    unknown = [name for name in given if name not in Options._fields]
    if unknown:
        known = " and ".join(Options._fields)
        raise ValueError(f"the backend gensor has the options {known}, not {', '.join(map(shown, unknown))}")
    if mode not in (None, "default"):
        raise ValueError(f"the backend gensor has no mode {shown(mode)}: leave it out")
    return torch_options(**given)


#: Called by `torch.compiler.reset`.
gensor.reset = forget  # type: ignore[attr-defined]
