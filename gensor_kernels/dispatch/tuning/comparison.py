"""The first call of a kernel that no race has compared: what it writes must be the library's before it serves again.

Races compare their winners (race.py). A kernel that serves without one, what the library needs several calls for, say,
is compared at the second call of its kind, once per Workload and process. A kernel that computes something else is
refused for the process: the next one compares again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gensor_kernels import config
from gensor_kernels.arrays import DeviceArray, Dtype
from gensor_kernels.devices.agreement import count_results, is_comparable, is_finite, results_of, sample
from gensor_kernels.dispatch.selection.library import Kernel
from gensor_kernels.operators.types.workload import Workload

from .tuned_calls import TunedCalls


def is_due(runtime: TunedCalls, kernel: Kernel | None, workload: Workload, dtype: Dtype) -> bool:
    """Return whether a kernel is to be compared before it serves a Workload again.

    No kernel is where a list pins it: all calls of such a block are served by the same one.
    """
    return (
        kernel is not None
        and config.compares()
        and runtime.pins is None
        and (kernel.digest, workload.key()) not in runtime.compared
        and is_comparable(dtype)
        and not runtime.library.has_raced(kernel, workload)
    )


def compare(
    runtime: TunedCalls,
    kernel: Kernel,
    workload: Workload,
    ours: Callable[[], DeviceArray],
    library: Callable[[], DeviceArray],
    written: Sequence[DeviceArray],
) -> bool:
    """Return whether a kernel's result is the library's, and what both write to the arrays `written`; if not, the
    process stops using the kernel.

    True where nothing can be compared: without memory, or where the library's result overflows before a kernel's does.
    """
    device = runtime.device
    runtime.compared.add((kernel.digest, workload.key()))
    try:
        with device.lending(None):
            result = library()
            count = count_results(result)
            results = results_of(result, count)
            expected, dtype = [sample(each) for each in (*results, *written)], results[0].dtype.name
            del result, results  # their memory serves the kernel
            if device.agrees((*results_of(ours(), count), *written), expected):
                return True
            if not all(is_finite(device.xp, each, dtype) for each in expected[:count]):
                return True
    except Exception as error:  # out of memory, say: the call itself is served as before
        config.logger().info("a kernel could not be compared with the library: %s", error, exc_info=True)
        return True
    config.warn_once(
        f"results of kernel {kernel.stored[:12]} are not those of {device.xp.__name__}, which serves in its place; "
        f"please report this with the output of gensor-tune doctor, and the call: {workload.key()}"
    )
    runtime.library.refuse([kernel.stored])
    return False
