"""The vendors that kernels are compared with: CuPy, PyTorch (cuBLAS, cuDNN) and PyTorch compiled (Triton); for products
also cuBLASLt's best proposal; for attention PyTorch's flash attention and cuDNN's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.gpu.harness.session import Session
from benchmarks.gpu.kernels.real_size import grossly_off
from gensor_kernels.devices.agreement import widen
from gensor_kernels.errors import ToolMissingError
from gensor_kernels.operators.attention.forms import FORMS
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.measure.operands import Noise, Operands
from gensor_tuner.measure.timer import CudaClock, HostClock, Vendor

from .cublaslt import CublasLt, NoCallError
from .pytorch import Torch

CUPY, CUBLASLT, TORCH, COMPILED = "cupy", "cublaslt", "torch", "compiled"
#: Backends of PyTorch's attention, which `torch` may choose or not.
OF_ATTENTION = FLASH, CUDNN = "flash", "cudnn"
OF_TORCH = (TORCH, COMPILED, *OF_ATTENTION)
#: Vendors timed with every kernel, because nothing has to be compiled.
EAGER = (CUPY, CUBLASLT, TORCH, *OF_ATTENTION)
NO_CALL = "it has no such call"


class Vendors:
    """The vendors of this machine; `missing` says why a vendor is absent. `clock` times calls (measure/timer.py)."""

    def __init__(self, session: Session, clock: HostClock | CudaClock | None = None):
        self.session, self.missing = session, dict[str, str]()
        self.torch: Torch | None = None
        self.cublaslt: CublasLt | None = None
        if CUBLASLT in session.vendors:
            self._find_cublaslt(clock or HostClock())
        if set(OF_TORCH).isdisjoint(session.vendors):
            return
        try:
            self.torch = Torch(session.emulate)
        except (ImportError, OSError, RuntimeError) as error:  # OSError: a library of PyTorch's own is absent
            why = f"{type(error).__name__}: {error}"[:300]
            self.missing |= dict.fromkeys((name for name in OF_TORCH if name in (TORCH, *session.vendors)), why)

    def _find_cublaslt(self, clock: HostClock | CudaClock) -> None:
        if self.session.emulate:
            self.missing[CUBLASLT] = "it takes a GPU"
            return
        stream = self.session.device.xp.cuda.get_current_stream
        try:
            self.cublaslt = CublasLt(clock.measure, lambda: stream().ptr)
        except (ToolMissingError, NoCallError) as error:
            self.missing[CUBLASLT] = str(error)[:300]

    def calls(self, compiled: bool = False) -> dict[str, Vendor]:
        """Return the calls of the requested vendors by name."""
        found: dict[str, Vendor] = {CUPY: Operands.vendor}
        if self.cublaslt is not None:
            found[CUBLASLT] = self.cublaslt.call
        if self.torch is not None:
            found[TORCH] = self.torch.call
            found |= {name: partial(self.torch.call, backend=name) for name in OF_ATTENTION}
            if compiled:
                found[COMPILED] = partial(self.torch.call, compiled=True)
        return {name: call for name, call in found.items() if name in self.session.vendors}

    def agreeing(
        self, workload: Workload, noise: Noise, ours: Callable[[Operands], Callable[[], None]], names: Sequence[str]
    ) -> tuple[dict[str, Vendor], dict[str, str]]:
        """Return the calls that compute the same result as our kernel, and why others are left out: the ratio of times
        of two different computations is meaningless."""
        names = [name for name in names if name not in OF_ATTENTION or workload.operator in FORMS]
        calls = {name: call for name, call in self.calls(COMPILED in names).items() if name in names}
        good, refused = dict[str, Vendor](), {name: why for name, why in self.missing.items() if name in names}
        operands = Operands(self.session.device, workload, noise)
        launch = ours(operands)
        for name, vendor in calls.items():
            try:
                refusal = self._refusal(operands, launch, name, vendor)
            except Exception as error:  # libraries raise errors of any type; ours is timed anyway
                self.session.is_fault(error)
                refusal = f"{type(error).__name__}: {error}"[:300]
            if refusal is None:
                good[name] = partial(self._or_none, vendor)
            elif refusal != NO_CALL or name != CUBLASLT:  # which has products only
                refused[name] = refusal
        return good, refused

    def _or_none(self, vendor: Vendor, operands: Operands) -> Callable[[], Any] | None:
        """Return a call that was good for other operands, or None where it fails for these: ours is timed anyway."""
        try:
            return vendor(operands)
        except Exception as error:
            self.session.is_fault(error)
            return None

    def _refusal(self, operands: Operands, launch: Callable[[], None], name: str, vendor: Vendor) -> str | None:
        call = vendor(operands)
        if call is None:
            return NO_CALL
        result: Any = call()
        if facts(operands.out.dtype).is_integer and not facts(operands.workload.accumulator).is_integer:
            return None  # positions: any of several equal elements is correct
        if name in OF_TORCH:
            assert self.torch is not None
            result = self.session.device.xp.asarray(self.torch.wide(result))
        # A plain product is written to the same array as ours.
        result = widen(result, result.dtype.name).copy()
        launch()
        self.session.synchronize()
        off = grossly_off(self.session, operands.out, result)
        return f"{off:.3%} of its result differ from ours" if off else None
