"""A family's launches, executed from their PTX."""

from collections.abc import Sequence

from gensor_kernels.devices.ptx.execute import Memory, Module, PtxFault, Run
from gensor_kernels.devices.ptx.limits import refusal
from gensor_kernels.errors import BuildError
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.tensor_maps import ALIGNMENT
from tests.doubles.strict.tensor_maps import refusals, with_maps

#: multiprocessors of the device that blocks which walk tiles are launched on, so that each has several
WALKED = 2
#: blocks that wait for one another, whatever their number, so that some tiles are shared by two, and by three
SHARED = 5

__all__ = ["Kernel", "Memory", "PtxFault"]


def _argument(launch: Launch, params: bytes) -> bytes:
    """Params, and the tensor maps that the driver makes of them."""
    try:
        return with_maps(params, launch.maps) if launch.maps else params
    except BuildError as error:
        raise PtxFault(f"map: {error}; {refusals[-1] if refusals else ''}") from error


class Kernel(Module):
    """The PTX of one source of a family for one target."""

    def run(
        self,
        launches: Sequence[Launch],
        params: bytes,
        memory: Memory,
        *,
        late: bool,
        order: str | int,
        ordered: bool = False,
    ) -> None:
        """Run launches one after the other, as `Run` describes; PtxFault where a rule of the ISA is broken."""
        for launch in launches:
            given = _argument(launch, params)
            entry = self.entry(launch.entry)
            if refused := refusal(self.module, entry, launch.block, launch.shared_bytes, len(given)):
                raise PtxFault(f"invalid: a launch of {refused} in {launch.entry}")
            if launch.maps and entry.params_alignment % ALIGNMENT:
                raise PtxFault(f"misaligned: the parameters of {launch.entry}, which has tensor maps")
            grid = min(launch.grid, SHARED) if launch.together and launch.per_sm else launch.blocks(WALKED)
            run = Run(
                launch.entry,
                (grid, 1, 1),
                (launch.block, 1, 1),
                given,
                shared_bytes=launch.shared_bytes,
                late=late,
                order=order,
                ordered=ordered,
                together=launch.together,
                cluster=launch.cluster,
                dependent=launch.dependent and self.sm >= 90,  # before, launches wait for the one in front
            )
            self.execute(run, memory)
