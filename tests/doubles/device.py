"""A fake device over NumPy arrays, composed of the parts that a test passes to its constructor.

    FakeDevice()                                  launches are recorded; NumPy is the library
    FakeDevice(clock=Race(ours=5, theirs=10))     races have this outcome
    FakeDevice(clock=Prices(launch=10, call=30))  a clock moves by the work done
    FakeDevice(execute=Exact(kernels))            launches compute something (campaigns/test_threads.py)
    FakeDevice(execute=emulate)                   the emulator taken for a GPU
    FakeDevice(fails={"load": BuildError(...)})   the device refuses kernels

A GPU with CuPy's own arrays is in `strict`: the real CudaDevice over a double of the driver.
"""

import math
from functools import partial

import numpy as np

from gensor_kernels.devices.emulator.device import EmulatorDevice
from gensor_kernels.devices.emulator.run import KernelFault
from gensor_kernels.devices.sampling import Samples
from gensor_kernels.machine.arch import Arch, lookup

#: `record` fills results with this number: a test sees that a kernel served the call.
MARK = 55


class Fault(RuntimeError):
    """The error of every call after a kernel has corrupted the device."""


# ---- execution: execute(device, code, launches) returns the Launcher of a kernel


def record(device, code, launches):
    def launch(arguments, arrays, steps, workspace):
        device.launched.append((bytes(arguments[0]), arrays))
        arrays[0][...] = MARK

    return launch


def emulate(device, code, launches, after=None):
    """Run the kernel on the emulator; `after(arrays, workspace)` may corrupt memory then."""
    emulated = EmulatorDevice.load(device, code, launches)

    def launch(arguments, arrays, steps, workspace):
        emulated(arguments, arrays, steps, workspace)
        if after is not None:
            after(arrays, workspace)

    return launch


class Clock:
    """No clock: nothing can be timed. `conditions` is the JSON text that times depend on: driver, power mode.

    `host`: microseconds of the host in races, for the library's call and for a kernel.
    """

    conditions, host = "{}", (0.1, 0.1)

    def spend(self, what, code=None):
        """Take the time of a "launch" of `code`, a "call" of the library, or a "copy"."""

    def __call__(self, calls):
        """Microseconds that each of a race's calls takes; the first is the library's."""
        raise NotImplementedError


class Race(Clock):
    """Races go as the test says: the library takes `theirs` microseconds, the kernels `ours`, `ours` + 1, ..."""

    conditions = '{"driver":1}'

    def __init__(self, ours=5.0, theirs=10.0):
        self.ours, self.theirs = ours, theirs

    def __call__(self, calls):
        for call in calls:
            call()
        return [self.theirs] + [self.ours + index for index in range(len(calls) - 1)]


class Prices(Clock):
    """A clock that moves by the work done, in microseconds; the price of a launch may be a function of its code.

    `measure` is the method of the tuner's clocks; `xp` is NumPy with copies and contractions that cost time.
    """

    def __init__(self, launch=10.0, call=30.0, copy=0.0):
        self.now, self.prices = 0.0, {"launch": launch, "call": call, "copy": copy}
        copies = {name: self._paid(name, "copy") for name in ("array", "ascontiguousarray", "sum")}
        self.xp = Numpy(**copies, **{name: self._paid(name, "call") for name in ("tensordot", "einsum")})

    def spend(self, what, code=None):
        price = self.prices[what]
        self.now += price(code) if callable(price) else price

    def __call__(self, calls):
        return [self._taken([call]) for call in calls]

    def measure(self, calls):
        return self._taken(calls) * 1e-6

    def _taken(self, calls):
        began = self.now
        for call in calls:
            call()
        return self.now - began

    def _paid(self, name, what):
        def call(*arguments, **keywords):
            self.spend(what)
            return getattr(np, name)(*arguments, **keywords)

        return call


class Numpy:
    __name__ = "numpy"

    def __init__(self, **own):
        vars(self).update(own)

    def __getattr__(self, name):
        return getattr(np, name)


def zero_product(a, b, out=None):
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return _given(np.zeros((*lead, a.shape[-2], b.shape[-1]), a.dtype), out)


def wide_product(a, b, out=None):
    return _given(np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype), out)


def _given(found, out):
    if out is None:
        return found
    out[...] = found
    return out


class FakeSampler:
    """Times calls by the device's clock. Samples of each call are 1 % apart; the host's are those of `clock.host`.

    Each call runs twice by itself, as far as `running` says, then all take turns.
    """

    def __init__(self, device, calls):
        self.device, self.last, self.starts = device, -1, {}
        self.calls = [partial(self.start, place, call) for place, call in enumerate(calls)]

    def start(self, place, call):
        self.last = place
        self.starts[place] = self.starts.get(place, 0) + 1
        call()

    @property
    def running(self):
        return {self.last} if max(self.starts.values(), default=0) <= 2 else set(self.starts)

    def first(self):
        return self.sampled(self.calls, self.device.timed)

    def again(self, places, rounds):
        self.starts.clear()
        return self.sampled([self.calls[place] for place in places], self.device.duels)

    def sampled(self, calls, noted):
        self.device._check("sample")
        found = self.device.clock(calls)
        noted.append(found)
        hosts = self.device.clock.host
        return [Samples([us * 0.99, us, us * 1.01], [hosts[index > 0]] * 3) for index, us in enumerate(found)]


class FakeDevice(EmulatorDevice):
    """A fake device in the host's memory. A test may change every attribute while it runs.

    `arch` is an Arch or its name; `execute` and `clock` are parts of this module; `xp` is the array library, by default
    the clock's or NumPy, and `multiply` its product. `fails` names the methods that raise: "load", "empty",
    "workspace", "product", "sample", "synchronize"; a dictionary gives their exceptions, else it is a MemoryError.
    `emulated`: only kernels may serve a call, and nothing races.

    `agreeing`: whether results of kernels, which compute nothing here, count as the library's.

    `loaded` and `ran` list the digests of loaded and of launched codes, `launched` the Params and arrays that `record`
    recorded, `timed` the microseconds of the calls of each race, `races` its number of kernels, and `duels` the
    microseconds of a kernel and the library's call alone, after a race.
    """

    refusals = (ZeroDivisionError,)
    faults = (KernelFault, Fault)

    def __init__(
        self,
        arch="sm_87",
        execute=record,
        clock=None,
        *,
        xp=None,
        multiply=np.matmul,
        fails=(),
        emulated=False,
        number=0,
    ):
        super().__init__(arch if isinstance(arch, Arch) else lookup(arch))
        self.execute, self.clock = execute, Clock() if clock is None else clock
        self.xp, self.multiply = xp or getattr(self.clock, "xp", np), multiply
        self.fails, self.emulated, self.number = fails, emulated, number
        self.is_capturing, self.allows_tf32, self.agreeing = False, False, True
        self.loaded, self.ran, self.launched, self.timed, self.duels = [], [], [], [], []

    def agrees(self, result, expected):
        return self.agreeing

    def _check(self, name):
        if name in self.fails:
            raise self.fails[name] if isinstance(self.fails, dict) else MemoryError(f"out of memory: {name}")

    def empty(self, shape, dtype):
        self._check("empty")
        return super().empty(shape, dtype)

    def workspace(self, nbytes, zero):
        self._check("workspace")
        return super().workspace(nbytes, zero)

    def synchronize(self):
        self._check("synchronize")

    def capturing(self):
        return self.is_capturing

    def tf32(self):
        return self.allows_tf32

    def is_built(self, code):
        return super().is_built(code) if self.emulated else bool(code.cubin)

    def load(self, code, launches):
        self._check("load")
        run, launch = self.execute(self, code, launches), self.launch
        self.loaded.append(code.digest)
        return lambda *arguments: launch(code, run, *arguments)

    def launch(self, code, run, *arguments):
        self.ran.append(code.digest)
        run(*arguments)
        self.clock.spend("launch", code)

    def product(self, a, b, precision=None, out=None):
        if self.emulated:
            return super().product(a, b, precision, out)
        self._check("product")
        self.clock.spend("call")
        return self.multiply(a, b, out=out)

    def erfc(self, x):
        if self.emulated:
            return super().erfc(x)
        return np.vectorize(math.erfc, otypes=[np.float64])(x).astype(x.dtype)

    @property
    def races(self):
        return [len(each) - 1 for each in self.timed]

    def conditions(self):
        return self.clock.conditions

    def sampler(self, calls):
        return FakeSampler(self, calls)
