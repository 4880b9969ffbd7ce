"""Sixteen threads that call while kernels are raced, tuned and swapped: all results are correct.

Launches compute the product in Params with NumPy, reading and writing memory where a kernel would. A result therefore
proves the arguments of its launch: addresses, strides, sizes and epilogue. The launches are compared with those of the
kernel's Program at these sizes, which proves that the Plan was made for them.

GENSOR_CAMPAIGN=full: 16 threads of 10,000 calls; by default a hundredth of that.
"""

import ctypes
import sys
import threading
import time
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.plans import trial
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library
from gensor_kernels.dispatch.tuning import background as background_tuning
from gensor_kernels.families.core import params
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.operators.products import matmul as operator
from gensor_kernels.operators.types.epilogue import OPERATIONS
from tests.campaign_size import FULL
from tests.doubles.device import FakeDevice, Race
from tests.doubles.kernels import aligned, kernels, workload

LAYOUTS = ((False, False), (True, False), (False, True))
KINDS = 50
EACH = 2  # kernels of a class
THREADS = 16
#: Calls of a thread, runs after which a kind of call is tuned, Workloads that tuning finds a kernel for, and how often
#: all Plans are made again.
CALLS, HOT, TUNED, SWAPS = (10_000, 64, 50, 20) if FULL else (100, 4, 5, 3)
RELU, BIAS = OPERATIONS["relu"].code, OPERATIONS["bias"].code


class Turns(Race):
    """The library and each kernel win races in turn: another winner each time."""

    def __init__(self):
        super().__init__()
        self.number = count(1)

    def __call__(self, calls):
        winner = next(self.number) % len(super().__call__(calls))
        return [500.0 if index == winner else 1000.0 for index in range(len(calls))]


class Exact:
    """Execution of float32 products with biases and relu. `kernels` may be launched, by digest.

    `errors` collects failed checks even where the caller catches them.
    """

    def __init__(self, kernels=()):
        self.errors, self.wanted = [], {}
        self.of_code = {kernel.code.digest: kernel for kernel in dict(kernels).values()}

    def __call__(self, device, code, launches):
        kernel, asked = self.of_code[code.digest], tuple(launches)

        def launch(arguments, arrays, steps, workspace):
            try:
                self._execute(kernel, asked, bytes(arguments[0]))
            except AssertionError as error:
                self.errors.append(error)
                raise

        return launch

    def _execute(self, kernel, launches, packed):
        numbers = params._HEAD.unpack_from(packed)
        pointers, strides, (m, n, k, batch), steps = numbers[:5], numbers[5:25], numbers[25:29], numbers[36]
        assert launches == self._launches(kernel, m, n, k, batch), (kernel.program, m, n, k, batch)
        inner = numbers[29:31]
        shape = (batch // (inner[0] * inner[1]), *inner)
        a, b, c = (
            memory(pointers[each], (*shape, *core), strides[5 * each : 5 * each + 5])
            for each, core in enumerate([(m, k), (k, n), (m, n)])
        )
        result = np.matmul(a, b)
        for index in range(steps):
            pointer, *where, _, operation, _ = params._STEP.unpack_from(packed, params.step_offset(index))
            assert operation in (RELU, BIAS)
            result = np.maximum(result, 0) if operation == RELU else result + memory(pointer, result.shape, where)
        c[...] = result

    def _launches(self, kernel, m, n, k, batch):
        key = kernel.digest, m, n, k, batch
        if key not in self.wanted:
            sizes = dict(m=m, n=n, k=k, batch=batch)
            served = replace(kernel.serves, sizes=tuple((name, sizes[name]) for name, _ in kernel.serves.sizes))
            self.wanted[key] = tuple(FAMILIES[kernel.program.family].launches(kernel.program, served))
        return self.wanted[key]


def memory(address, shape, strides):
    """float32 memory at an address; strides in elements, none negative."""
    first = np.frombuffer((ctypes.c_float * 1).from_address(address), np.float32)
    return np.lib.stride_tricks.as_strided(first, shape, [4 * stride for stride in strides])


def stock():
    """Return kernels by digest: default Programs of every layout, and of less demanding ones that fit too."""
    found = {}
    for trans_a, trans_b in LAYOUTS:
        wanted = operator.workload(64, 64, 64, dtype="float32", trans_a=trans_a, trans_b=trans_b)
        narrow = replace(wanted, alignment=tuple((name, 4) for name, _ in wanted.alignment))
        for each in (wanted, narrow):
            found |= dict(sorted(kernels(each).items())[:EACH])
    return found


class Kind:
    """One kind of call: operands of small whole numbers, whose result is exact in float32."""

    def __init__(self, index):
        rng = np.random.default_rng(index)
        m, n, k = (4 * int(size) for size in rng.integers(2, 14, 3))
        lead = (2,) if index % 7 == 3 else ()
        trans_a, trans_b = LAYOUTS[index % 3]
        self.a, self.b = draw(rng, lead, m, k, trans_a), draw(rng, lead, k, n, trans_b)
        self.steps, self.expected = (), np.matmul(self.a, self.b)
        if index % 4 == 1:
            bias = draw(rng, (), 1, n, False)[0]
            self.steps = (Operation("bias", bias), Operation("relu"))
            self.expected = np.maximum(self.expected + bias, 0)
        self.with_out = index % 5 == 2

    def call(self, runtime):
        out = aligned(self.expected.shape) if self.with_out else None
        found = runtime.call(self.a, self.b, out, self.steps, None, None)
        assert out is None or found is out
        return found


def draw(rng, lead, rows, columns, transposed):
    """Whole numbers from -4 to 4, in C order or transposed."""
    array = aligned((*lead, columns, rows)).swapaxes(-1, -2) if transposed else aligned((*lead, rows, columns))
    array[...] = rng.integers(-4, 5, array.shape)
    return array


class Stores:
    """Databases that tuning adds to: at first a few kernels, each tuned Workload brings more and a record."""

    def __init__(self):
        self.kernels = stock()
        self.order = sorted(self.kernels)
        self.shown, self.records = 4, {}

    def read(self):
        shown = {digest: self.kernels[digest] for digest in self.order[: self.shown]}
        return library.Contents(shown, {key: each for key, each in self.records.items() if each in shown})

    def tune(self, wanted, arch, notes, device, background):
        """Stands for the tuning process: the last kernel shown that fits is the record."""
        self.shown = min(self.shown + 1, len(self.order))
        fitting = [digest for digest in self.order[: self.shown] if self.kernels[digest].fits(wanted)]
        fitting = fitting if len(self.records) < TUNED else []
        if fitting:
            self.records[wanted.key()] = fitting[-1]
        return bool(fitting)


@pytest.fixture
def stores(monkeypatch, tmp_path):
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "user.db"))
    monkeypatch.delenv("GENSOR_TUNE", raising=False)
    made = Stores()
    monkeypatch.setattr(background_tuning, "tune", made.tune)
    monkeypatch.setattr(background_tuning, "MOST_FAILURES", sys.maxsize)
    monkeypatch.setattr(trial, "HOT_RUN", HOT)
    before = sys.getswitchinterval()
    monkeypatch.delenv("GENSOR_BACKGROUND", raising=False)
    sys.setswitchinterval(1e-4)
    yield made
    sys.setswitchinterval(before)


def test_every_result_is_right_while_kernels_are_swapped(stores):
    device = FakeDevice(execute=Exact(stores.kernels), clock=Turns())
    runtime = Runtime(device, library.Library(read=stores.read))
    kinds, start = [Kind(index) for index in range(KINDS)], threading.Barrier(THREADS)
    wrong, done, over = [], [], []

    def work(number):
        rng = np.random.default_rng(number)
        start.wait()
        for index in rng.integers(0, KINDS, CALLS):
            try:
                if not np.array_equal(kinds[index].call(runtime), kinds[index].expected):
                    wrong.append(f"kind {index} by thread {number}")
            except BaseException as error:
                wrong.append(repr(error))
            done.append(number)

    def swap():
        """The end of a tuning, repeated."""
        for swaps in range(1, SWAPS):
            while len(done) < swaps * THREADS * CALLS // SWAPS and not over:
                time.sleep(0.001)
            runtime.renew(workload(16, 16, 16))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    swapper = threading.Thread(target=swap)
    for each in (*threads, swapper):
        each.start()
    for each in threads:
        each.join()
    over.append(True)
    swapper.join()
    runtime.background.join(60)
    assert not wrong, (len(wrong), wrong[:5])
    assert not device.execute.errors
    assert len(device.races) > KINDS / 2 and len(set(device.ran)) >= 3  # kernels did serve, not one alone
    assert stores.records
    assert len(device.ran) > CALLS
    print(f"campaign: {THREADS * CALLS} calls, {len(device.ran)} launches of {len(set(device.ran))} kernels")
    print(f"campaign: {len(device.races)} races, {len(stores.records)} Workloads tuned")
