"""Kernels that torch.compile's Inductor would launch for a module on a CUDA device, from the code that it generates.

Parameters and inputs are fake tensors on a CUDA device, and the part's properties are given: there is no GPU, and the
code is not run.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

#: What Inductor asks of the device: an Orin Nano (sm_87).
PART = SimpleNamespace(
    **dict(name="Orin", major=8, minor=7, total_memory=8 << 30, multi_processor_count=8, warp_size=32),
    **dict(max_threads_per_multi_processor=1536, max_threads_per_block=1024, regs_per_multiprocessor=65536),
    **dict(shared_memory_per_block=49152, shared_memory_per_multiprocessor=167936),
    **dict(shared_memory_per_block_optin=166912, L2_cache_size=2 << 20, gcnArchName=""),
    **dict(uuid="0", pci_bus_id=0, is_integrated=True, is_multi_gpu_board=False),
    **dict(clock_rate=1000000, memory_clock_rate=1000000, memory_bus_width=128),
)


class Launched(NamedTuple):
    """Launches of generated code: Triton kernels, and calls of libraries (products, convolutions, attention)."""

    triton: int
    library: int


def launched(module: Any, inputs: Any) -> Launched:
    """Return what the generated code of a module in float16 launches."""
    code = generated(module, inputs)
    triton = len(re.findall(r"^\s+triton_\w+\.run\(", code, re.MULTILINE))
    library = re.findall(r"(?:extern_kernels\.\w+|torch\.ops\.aten\.[\w.]+)\(", code)
    return Launched(triton, len(library))


def _constant(value: Any) -> Any:
    return lambda *_, **__: value


def generated(module: Any, inputs: Any) -> str:
    """Return the Python code that Inductor generates for a module in float16 on a CUDA device."""
    import torch
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import compile_fx, config
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch._inductor.fx_passes.post_grad import post_grad_passes, view_to_reshape
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode

    def moved(tensor: Any) -> Any:
        dtype = torch.float16 if tensor.is_floating_point() else tensor.dtype
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device="cuda")

    with ExitStack() as within:
        within.enter_context(torch.no_grad())
        # Folding of constants would compute on the device, and padding of products would be timed there.
        within.enter_context(config.patch(joint_graph_constant_folding=False, shape_padding=False))
        for name, value in (
            ("get_device_properties", PART),
            ("get_compute_capability", f"{PART.major}{PART.minor}"),
            *(("current_device", 0), ("device_count", 1), ("is_available", True)),
            *(("is_triton_capable", True), ("raise_if_triton_unavailable", None)),
        ):
            within.enter_context(mock.patch.object(CudaInterface, name, _constant(value)))
        within.enter_context(mock.patch("torch._inductor.scheduler.has_triton", _constant(True)))
        within.enter_context(mock.patch("torch.utils._triton.triton_hash_with_backend", _constant("none")))
        for name, value in (
            ("get_device_properties", PART),
            ("get_device_capability", (PART.major, PART.minor)),
            *(("current_device", 0), ("device_count", 1)),
        ):
            within.enter_context(mock.patch(f"torch.cuda.{name}", _constant(value)))
        with FakeTensorMode(allow_non_fake_inputs=True):
            torch.__future__.set_overwrite_module_params_on_conversion(True)
            fake = module.eval().requires_grad_(False)._apply(moved)
            program = torch.export.export(fake, tuple(map(moved, inputs)), strict=False)
            program = program.run_decompositions(select_decomp_table())
        graph = program.graph_module
        given = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
        mode = next(each.fake_mode for each in given if hasattr(each, "fake_mode"))
        graph = joint_graph_passes(graph)
        with V.set_fake_mode(mode):
            view_to_reshape(graph)
            compile_fx.fake_tensor_prop(graph, given, True)
            post_grad_passes(graph, True)
            lowering = GraphLowering(graph, example_inputs=given, is_inference=True)
            with V.set_graph_handler(lowering), V.set_extern_kernel_nodes([]), V.set_debug_handler(DebugContext()):
                lowering.run(*given)
                code = lowering.codegen()
    found = code[0] if isinstance(code, tuple) else code
    return str(getattr(found, "value", found))
