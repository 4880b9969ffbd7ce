"""A device on which races have the outcome a test gives them."""

from dataclasses import replace

from gensor_kernels.dispatch.selection import library

from .numpy_device import NumpyDevice, aligned, starters

CONDITIONS = '{"driver":1}'


class RacingDevice(NumpyDevice):
    """Samples that the test gives: `theirs` of the library's call, `ours` of every kernel's, in microseconds."""

    def __init__(self, ours=5.0, theirs=10.0):
        super().__init__()
        self.ours, self.theirs, self.races, self.under = ours, theirs, [], CONDITIONS

    def conditions(self):
        return self.under

    def sampled(self, calls):
        for call in calls:
            call()
        self.races.append(len(calls) - 1)
        times = [self.theirs] + [self.ours + index for index in range(len(calls) - 1)]
        return [[time * 0.99, time, time * 1.01] for time in times]


def kernels(wanted, cubin=b"\x7fELF"):
    """The default Programs with binaries, by digest."""
    found = {}
    for kernel in starters(wanted):
        made = replace(kernel.code, cubin=cubin)
        found[kernel.digest] = library.Kernel(kernel.digest, kernel.program, wanted, lambda made=made: made)
    return found


def products(runtime, runs, out=False):
    """The results' first elements: 55 where a kernel served, 0 where the library did."""
    a, b = aligned((64, 64)), aligned((64, 64))
    c = aligned((64, 64)) if out else None
    return [float(runtime.call(a, b, c, (), None, None)[0, 0]) for _ in range(runs)]
