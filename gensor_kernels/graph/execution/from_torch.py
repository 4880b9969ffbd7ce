"""`from_torch`: a loaded model from a PyTorch module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gensor_kernels.shown import shown

from .model import Model

if TYPE_CHECKING:
    import torch


def from_torch(
    module: Any,
    args: Any = None,
    kwargs: Any = None,
    *,
    dynamic_shapes: Any = None,
    dtype: str | torch.dtype | None = None,
    weights: str | None = None,
) -> Model:
    """Make a model from a PyTorch module, for inference.

    `torch.export` traces the module with example inputs, and PyTorch's ONNX exporter
    translates the trace in memory. Nothing is written to a file.

    Parameters
    ----------
    module : torch.nn.Module or torch.export.ExportedProgram
        Module in evaluation mode (`module.eval()`), or a program that is exported
        already and needs no example inputs.
    args : tensor or sequence of tensor, optional
        Example inputs by position: their dtypes and shapes count, not their values.
    kwargs : dict of str to tensor, optional
        Example inputs by name.
    dynamic_shapes : dict or sequence, optional
        Sizes that a call chooses, as `torch.export.export` takes them, or their names:
        `{"x": {0: "batch"}}` leaves the first extent of input `x` open. By default, all
        sizes are those of the example inputs.
    dtype : {None, "float16", "bfloat16"} or torch.dtype, optional
        Compute float32 tensors in 16 bits, as `load` does; weights are cast once. Inputs
        and results keep the module's dtypes.
    weights : {None, "int8", "int4"}, optional
        Store constant weights of products of 16 bits in 8 or 4 bits, as `load` does.

    Returns
    -------
    Model
        As `load` returns it. Called with tensors it gives tensors, on PyTorch's current
        stream; inside `emulated` these are in the host's memory. Results are a flat
        tuple, whatever structure the module returns.

    Raises
    ------
    ModelError
        If the module cannot be exported, or packages of the `torch` extra are missing.
    UnsupportedError
        If an operator is not served, or the module changes its inputs or buffers in
        place.
    TypeError
        If `module` is no module, or `args` no tensors.
    ValueError
        If the module is in training mode, or `dtype` or `weights` is another word.

    Notes
    -----
    Parameters in the host's memory are not copied, and must not be changed afterwards.
    Call `from_torch` again with a module that was trained further.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> sizes = ({0: "batch"},)
    >>> module, example = torch.nn.Linear(4, 2).eval(), torch.ones(8, 4)  # doctest: +SKIP
    >>> model = gensor_kernels.from_torch(
    ...     module, example, dynamic_shapes=sizes
    ... )  # doctest: +SKIP
    >>> with gensor_kernels.emulated("sm_87"):  # doctest: +SKIP
    ...     model(torch.ones(3, 4)).shape
    torch.Size([3, 2])
    """
    from gensor_kernels.graph.readers.torch_module import read, torch_library, torch_options

    torch = torch_library()
    options = torch_options(dtype, weights)
    args = () if args is None else (args,) if isinstance(args, torch.Tensor) else args
    if not isinstance(module, (torch.nn.Module, torch.export.ExportedProgram)):
        raise TypeError(f"module must be a torch.nn.Module or a torch.export.ExportedProgram, not {shown(module)}")
    if not isinstance(args, (list, tuple)):
        raise TypeError(f"args must be a tensor or a tuple of tensors, not {shown(args)}")
    if isinstance(module, torch.nn.Module):
        trains = [name for name, each in module.named_modules() if each.training]
        if trains:
            where = f" (submodule {trains[0]})" if trains[0] else ""
            raise ValueError(f"{type(module).__name__} is in training mode{where}: call module.eval() first")
    return Model(read(module, args, kwargs or {}, dynamic_shapes), type(module).__name__, options)
