"""The real CudaDevice over the strict double of the driver: what it refuses, and when faults show.

A kernel's binary is NVRTC's; the emulator runs its launches at the end of their stream's queue.
"""

import threading
from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.build import nvrtc
from gensor_kernels.devices import cuda, cupy_internals, dependent, tensor_maps
from gensor_kernels.devices.emulator.run import encode
from gensor_kernels.devices.sampling import relaxed_capture
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library
from gensor_kernels.errors import BuildError
from gensor_kernels.machine.arch import archs, lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.programs.core.family import Launch
from gensor_kernels.programs.core.params import SIZE
from gensor_kernels.programs.core.tensor_maps import TensorMap, described
from gensor_kernels.programs.space import Space
from tests.devices.test_tensor_maps import packed

cupy = pytest.importorskip("cupy")
from tests.doubles.strict import context, elf  # noqa: E402
from tests.doubles.strict.arrays import host  # noqa: E402
from tests.doubles.strict.capture import GLOBAL, RELAXED, THREAD_LOCAL  # noqa: E402
from tests.doubles.strict.machine import installed  # noqa: E402
from tests.doubles.strict.memory import Arena, Memory  # noqa: E402
from tests.doubles.strict.part import listed  # noqa: E402
from tests.threads import in_threads  # noqa: E402

PART = "rtx-3090"


@cache
def compiled():
    """A kernel of float16 products that are split in two, with NVRTC's binary."""
    wanted, arch = matmul.workload(128, 64, 256, dtype="float16"), lookup(PART)
    (family,) = (each.family for each in Space(wanted, arch).families if each.family.name == "contraction_mma")
    program = list(family.starters(wanted, arch))[1].replace(split_k=2)
    made = library.generate(program, wanted, arch)
    built = nvrtc.compile_cubin(made.code.source, made.code.target)
    assert built.error is None, built.error
    code = replace(made.code, cubin=built.cubin)
    return library.Kernel(made.digest, program, wanted, lambda: code)


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    monkeypatch.setenv("GENSOR_DETERMINISTIC", "1")  # no races
    with installed([PART]) as made:
        yield made


@pytest.fixture
def product(machine, monkeypatch, needs_emulator):
    """product(a, b, out) of the public function, by that kernel."""
    kernel = compiled()
    machine.compiled_from(kernel.code.cubin, kernel.code.source)
    contents = library.Contents({kernel.digest: kernel})
    monkeypatch.setattr(current, "only", Runtime(machine.device(), library.Library(contents)))
    return lambda a, b, out=None: gk.matmul(a, b, out=out)


def operands(machine, rows=128):
    """Small integers, whose product float16 has exactly, and that product."""
    rng = np.random.default_rng(rows)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((rows, 256), (256, 64)))
    return machine.cupy.asarray(a), machine.cupy.asarray(b), a.astype(np.float32) @ b.astype(np.float32)


def raises(*names):
    return pytest.raises(RuntimeError, match="|".join(f"CUDA_ERROR_{name}:" for name in names))


# ---- identification


def test_every_listed_part_is_identified_by_the_device_itself(monkeypatch):
    known = {each.part for each in archs()}
    parts = [row[0] for row in listed("devices.csv") if row[0] in known] + [row[0] for row in listed("orin_modes.csv")]
    assert len(parts) > 50
    for name in dict.fromkeys(parts):
        with installed([name]) as made:
            device = made.device()
            assert device.arch.part == name and not device.unsupported
            assert device.integrated == (device.arch.name == "sm_87") and not device.capturing()


# ---- modules


def loaded(device, image, *launches):
    """A launcher of launches by an image; nothing is compiled in its place."""
    device.compiles = False
    code = library.code(f"// {hash(image)}", {}, "sm_86", image)
    return device.load(code, launches or [Launch("kernel", 1, 32, 0)])


def written(entry=None, capability=(8, 6), specific=False, name="kernel"):
    return elf.written(capability, {name: entry or elf.Entry(parameters=(SIZE,))}, specific)


@pytest.mark.parametrize(
    ("image", "error"),
    [
        (lambda: written()[:-1], "INVALID_IMAGE"),
        (lambda: written()[:100], "INVALID_IMAGE"),
        (lambda: written()[:18] + b"\x3e" + written()[19:], "INVALID_IMAGE"),
        (lambda: b"\x7fELF", "INVALID_IMAGE"),
        (lambda: b"#include <x>", "INVALID_PTX"),
        (lambda: written(capability=(7, 5)), "NO_BINARY_FOR_GPU"),
        (lambda: written(capability=(8, 9)), "NO_BINARY_FOR_GPU"),
        (lambda: written(capability=(8, 7)), "NO_BINARY_FOR_GPU"),
        (lambda: written(capability=(9, 0), specific=True), "NO_BINARY_FOR_GPU"),
        (lambda: written(name="another"), "NOT_FOUND"),
    ],
)
def test_what_is_no_module_of_this_part_is_refused(machine, image, error):
    device = machine.device()
    with pytest.raises(BuildError, match=f"CUDA_ERROR_{error}:"):
        loaded(device, image())
    loaded(device, written())  # the context is none the worse
    loaded(device, written(capability=(8, 0)))


def test_code_for_one_capability_alone_loads_there_only(monkeypatch):
    with installed(["h200"]) as hopper:
        loaded(hopper.device(), written(capability=(9, 0), specific=True))
    with installed(["orin-nano-8gb"]) as tegra, pytest.raises(BuildError, match="NO_BINARY_FOR_GPU"):
        loaded(tegra.device(), written(capability=(8, 6)))


def test_modules_belong_to_the_device_that_was_current(monkeypatch):
    image = written(capability=(9, 0), specific=True)
    with installed([PART, "h200"]) as machine:
        other = machine.device(1)
        function = loaded(other, image)
        assert machine.system.current.number == 0 and other.arch.part == "h200"
        with raises("INVALID_HANDLE"):
            function(other.local.arguments, (), (), None)
        with machine.cupy.cuda.Device(1):
            function(other.local.arguments, (), (), None)
        monkeypatch.setattr(cuda.CudaDevice, "current", lambda self: nullcontext())
        with pytest.raises(BuildError, match="NO_BINARY_FOR_GPU"):
            loaded(machine.device(1), image)


# ---- limits of the part


@pytest.mark.parametrize(
    ("entry", "launch", "error"),
    [
        ({}, Launch("kernel", 4, 1024, 0), ""),
        ({}, Launch("kernel", 1, 1025, 0), "INVALID_VALUE"),
        ({}, Launch("kernel", 2**31, 32, 0), "INVALID_VALUE"),
        ({"registers": 64}, Launch("kernel", 1, 1024, 0), ""),
        ({"registers": 65}, Launch("kernel", 1, 1024, 0), "LAUNCH_OUT_OF_RESOURCES"),
        ({"registers": 255}, Launch("kernel", 1, 256, 0), ""),
        ({"registers": 255}, Launch("kernel", 1, 288, 0), "LAUNCH_OUT_OF_RESOURCES"),
        ({"most_threads": 128}, Launch("kernel", 1, 160, 0), "INVALID_VALUE"),
        ({"threads": 128}, Launch("kernel", 1, 96, 0), "INVALID_VALUE"),
        ({}, Launch("kernel", 1, 32, 101376), ""),
        ({}, Launch("kernel", 1, 32, 101377), "INVALID_VALUE"),
        ({"shared_bytes": 16}, Launch("kernel", 1, 32, 101376), "INVALID_VALUE"),
        ({"shared_bytes": 16}, Launch("kernel", 1, 32, 48 * 1024), "INVALID_VALUE"),  # static memory counts too
        ({"cluster": 2}, Launch("kernel", 4, 32, 0), ""),
        ({"cluster": 2}, Launch("kernel", 3, 32, 0), "INVALID_CLUSTER_SIZE"),
        ({"cluster": 16}, Launch("kernel", 16, 32, 0), "INVALID_CLUSTER_SIZE"),
    ],
)
def test_the_parts_limits_hold(machine, entry, launch, error):
    device = machine.device()
    image = written(elf.Entry(parameters=(SIZE,), **entry))
    with pytest.raises((BuildError, RuntimeError), match=error) if error else nullcontext():
        loaded(device, image, launch)(device.local.arguments, (), (), None)
        machine.synchronize()
    assert len(machine.context.launches) == (not error)


def test_more_shared_memory_has_to_be_allowed_first(machine, monkeypatch):
    device = machine.device()
    monkeypatch.setattr(cuda, "allow_shared_bytes", lambda *_: None)
    with raises("INVALID_VALUE"):
        loaded(device, written(), Launch("kernel", 1, 32, 60_000))(device.local.arguments, (), (), None)


def test_a_cooperative_grid_is_resident_at_once(machine):
    module = machine.cupy.cuda.function.Module()
    module.load(written(elf.Entry(registers=128)))
    function = module.get_function("kernel")
    most = 82 * (65536 // (128 * 512))
    function((most,), (512,), (), 0, None, True)
    with raises("COOPERATIVE_LAUNCH_TOO_LARGE"):
        function((most + 1,), (512,), (), 0, None, True)


def test_kernels_take_the_arguments_that_they_declare(machine):
    device = machine.device()
    with pytest.raises(AssertionError, match="takes 2 arguments, not 1"):
        loaded(device, written(elf.Entry(parameters=(SIZE, 4))))(device.local.arguments, (), (), None)


def test_tensor_maps_are_the_driver_librarys(monkeypatch):
    wanted = described(packed(), TensorMap("a", False, 2, 128))
    with installed(["h200"]):
        assert tensor_maps.encode(wanted) == encode(wanted)
        for wrong in ({"address": wanted.address + 8}, {"box": (64, 300)}, {"strides": (24, *wanted.strides[1:])}):
            with pytest.raises(BuildError, match="CUresult 1"):
                tensor_maps.encode(replace(wanted, **wrong))
    with installed([PART]), pytest.raises(BuildError, match="CUresult 801"):
        tensor_maps.encode(wanted)


# ---- results, late


def test_a_product_is_there_when_its_stream_has_come_so_far(machine, product):
    a, b, exact = operands(machine)
    result = product(a, b)
    launches = [(each.function.name, len(each.parameters)) for each in machine.context.launches]
    assert launches == [("contraction_mma", SIZE), ("contraction_reduce", SIZE)]
    assert np.isnan(host(result)).all()  # nobody has asked yet
    np.testing.assert_array_equal(result.get(), exact)


def test_faults_of_kernels_come_late_and_stay(machine, product):
    a, b, _ = operands(machine)
    product(a, b)
    machine.synchronize()
    device = current.only.device
    beyond = device.borrowed(a.data.ptr, (1024, 256), (512, 2), np.float16, a, 0)  # of which 128 rows are there
    result = product(beyond, b)
    assert machine.context.failed is None
    with pytest.raises(device.faults, match=r"ILLEGAL_ADDRESS: .*contraction_mma"):
        device.synchronize()
    for call in (
        lambda: product(a, b),
        lambda: device.synchronize(),
        lambda: machine.cupy.empty((64,), np.float32),
        lambda: loaded(device, written()),
        lambda: machine.cupy.cuda.Event().record(),
    ):
        with pytest.raises((RuntimeError, BuildError), match="ILLEGAL_ADDRESS"):
            call()
    del result
    machine.context.reset()
    assert machine.cupy.asarray(np.arange(3)).get().tolist() == [0, 1, 2]


@pytest.mark.parametrize("ordered", [True, False])
def test_streams_that_do_not_wait_read_too_early(machine, ordered):
    first, second = (machine.cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    values = machine.cupy.empty((4,), np.float32)
    with first:
        values.fill(3)
        written_to = first.record()
    with second:
        if ordered:
            second.wait_event(written_to)
        doubled = values + values
        assert (doubled.get() == 6).all() == ordered


@pytest.mark.parametrize("ordered", [True, False])
def test_memory_that_another_stream_uses_must_not_be_freed(machine, ordered):
    first, second = (machine.cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    with first:
        values = machine.cupy.asarray(np.ones(4, np.float32))
        second.wait_event(first.record())
    with second:
        doubled = values + values
    if ordered:
        first.wait_event(second.record())
    del values
    with nullcontext() if ordered else raises("ILLEGAL_ADDRESS"), second:
        assert doubled.get().tolist() == [2, 2, 2, 2]


def test_freed_memory_is_the_next_ones_at_once_in_its_own_stream(machine):
    values = machine.cupy.asarray(np.ones(4, np.float32))
    place, doubled = values.data.ptr, values + values
    del values
    other = machine.cupy.empty((4,), np.float32)
    assert other.data.ptr == place and np.isnan(other.get()).all() and doubled.get().tolist() == [2] * 4
    with machine.cupy.cuda.Stream():
        assert machine.cupy.empty((4,), np.float32).data.ptr not in (place, doubled.data.ptr)


def test_the_legacy_stream_waits_for_blocking_streams(machine):
    values = machine.cupy.empty((4,), np.float32)
    with machine.cupy.cuda.Stream():
        values.fill(1)
    doubled = values + values
    with machine.cupy.cuda.Stream():
        assert (doubled + values).get().tolist() == [3] * 4


# ---- captures


def outside(machine):
    event = machine.cupy.cuda.Event()
    with machine.cupy.cuda.Stream(non_blocking=True):
        event.record()
    return event


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda machine, stream, event: stream.synchronize(), "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda machine, stream, event: event.synchronize(), "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda machine, stream, event: event.done, "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda machine, stream, event: stream.wait_event(event), "STREAM_CAPTURE_ISOLATION"),
        (lambda machine, stream, event: machine.cupy.empty((7,)), "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda machine, stream, event: machine.pool.free_all_blocks(), "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda machine, stream, event: loaded(machine.device(), written()), "STREAM_CAPTURE_UNSUPPORTED"),
        (lambda machine, stream, event: machine.synchronize(), "STREAM_CAPTURE_IMPLICIT"),
    ],
)
def test_what_a_capture_forbids_breaks_it(machine, call, error):
    event, freed = outside(machine), machine.cupy.empty((9,))
    del freed
    stream = machine.cupy.cuda.Stream()
    with stream:
        stream.begin_capture(GLOBAL)
        with pytest.raises((RuntimeError, BuildError), match=error):
            call(machine, stream, event)
        assert machine.device().capturing()  # CuPy raises, for an invalid capture
        with raises("STREAM_CAPTURE_INVALIDATED"):
            stream.end_capture()
        assert not machine.device().capturing()


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_a_mode_says_whose_calls_break_a_capture(machine, mode):
    stream, breaks = machine.cupy.cuda.Stream(), []

    def elsewhere(_):
        try:
            machine.cupy.empty((1000,))
        except RuntimeError:
            breaks.append("another thread")

    with stream:
        stream.begin_capture(mode)
        assert machine.device().capturing()
        with relaxed_capture():
            machine.cupy.empty((2000,))
        in_threads(elsewhere, [0])
        try:
            machine.cupy.empty((4000,))
        except RuntimeError:
            breaks.append("this thread")
        with raises("STREAM_CAPTURE_INVALIDATED") if breaks else nullcontext():
            stream.end_capture()
    assert breaks == [["another thread", "this thread"], ["this thread"], []][mode]


def test_a_device_on_the_legacy_stream_captures_while_another_stream_does(machine):
    device, stream = machine.device(), machine.cupy.cuda.Stream()
    with stream:
        stream.begin_capture(RELAXED)
        assert device.capturing()
    assert device.capturing()  # the query itself is refused there
    stream.end_capture()
    assert not device.capturing()


def test_captures_end_where_they_began_with_all_their_streams(machine):
    stream, other = machine.cupy.cuda.Stream(), machine.cupy.cuda.Stream()
    stream.begin_capture()
    other.wait_event(stream.record())
    with other:
        machine.cupy.cuda.MemoryPointer(machine.pool(512).mem, 0).memset_async(0, 4)
    with raises("STREAM_CAPTURE_UNMATCHED"):
        other.end_capture()
    with raises("STREAM_CAPTURE_UNJOINED"):
        stream.end_capture()
    stream.begin_capture(THREAD_LOCAL)
    ended = []

    def end(_):
        with raises("STREAM_CAPTURE_WRONG_THREAD"):
            stream.end_capture()
        ended.append(True)

    in_threads(end, [0])
    stream.end_capture()
    assert ended == [True]


def test_what_was_captured_runs_at_its_replays_only(machine):
    values, double = (machine.cupy.asarray(np.eye(2, dtype=np.float32) * each) for each in (1, 2))
    machine.synchronize()
    graph = machine.captured(lambda: machine.cupy.matmul(values, double, out=values))[1]
    machine.synchronize()
    assert values.get().tolist() == [[1, 0], [0, 1]]
    for expected in (2, 4, 8):
        graph.launch()
        assert values.get().tolist() == [[expected, 0], [0, expected]]
    graph.destroy()
    with raises("INVALID_HANDLE"):
        graph.launch()


# ---- faults of former releases, put back


@pytest.fixture(params=["strict", "kind"])
def strict(request, monkeypatch):
    """Whether the double is as it is, or memory that was freed stays as it was and is nobody else's."""
    if request.param == "kind":
        monkeypatch.setattr(Memory, "damage", lambda self, uses: "")
        monkeypatch.setattr(Memory, "poison", lambda self, block: None)
        monkeypatch.setattr(Memory, "disown", lambda self, block: None)
        monkeypatch.setattr(Arena, "take", lambda self, size: None)
    return request.param == "strict"


def captured_product(machine, product, stream=None):
    """(result, what it should be, the graph, operands) of a captured product, whose workspace the call has dropped."""
    a, b, exact = operands(machine)
    out = machine.cupy.empty(exact.shape, np.float16)
    product(a, b, out)
    machine.synchronize()
    graph = machine.captured(lambda: product(a, b, out), stream, RELAXED)[1]
    out.fill(0)
    return out, exact, graph, (a, b)


def test_a_captured_product_is_right_when_others_have_all_free_memory(machine, product):
    out, exact, graph, _operands = captured_product(machine, product)
    machine.others = machine.pool.everything()
    for _ in range(2):
        graph.launch()
        np.testing.assert_array_equal(out.get(), exact)


def test_captured_memory_that_goes_back_to_the_pool_shows(machine, product, monkeypatch, strict):
    """Until captured calls had memory of their graph, replays wrote to memory that the pool had given to others."""
    monkeypatch.setattr(cuda.CudaDevice, "lasting", lambda self: nullcontext())
    out, exact, graph, _operands = captured_product(machine, product)
    machine.others = machine.pool.everything()
    graph.launch()
    if strict:
        with raises("ILLEGAL_ADDRESS"):
            out.get()
    else:
        np.testing.assert_array_equal(out.get(), exact)


def test_captured_memory_that_goes_back_to_the_pool_is_written_to(machine, product, monkeypatch):
    """What a GPU does, which knows no owners: a replay's partial sums are in somebody else's array."""
    monkeypatch.setattr(cuda.CudaDevice, "lasting", lambda self: nullcontext())
    monkeypatch.setattr(Memory, "damage", lambda self, uses: "")
    stream = machine.cupy.cuda.Stream()
    out, exact, graph, _operands = captured_product(machine, product, stream)
    with stream:
        theirs = machine.cupy.empty((8192,), np.float32)
        theirs.fill(1)
        graph.launch()
        assert (theirs.get() != 1).any()
        np.testing.assert_array_equal(out.get(), exact)


def argument_of_cupy_13(cupy):
    """The launch argument of the first releases, with CuPy 13's CPointer: it holds its Python argument's address."""

    class CPointer(cupy.cuda.function.CPointer):
        def __init__(self, address):
            super().__init__(id(address))
            self.kept = address

    class Argument(CPointer):
        def __init__(self, address):
            super().__init__(address)
            self.pointers = None

    return Argument


@pytest.mark.parametrize("executes", [True, False])
def test_launches_that_pass_the_interpreters_memory_show(machine, product, monkeypatch, executes):
    """As with CuPy 13, until a launch passed the address of Params there too."""
    monkeypatch.setattr(cupy_internals, "argument_type", argument_of_cupy_13)
    if not executes:  # a driver that only writes launches down sees nothing
        monkeypatch.setattr(context, "execute", lambda *_: None)
    contents = library.Contents({compiled().digest: compiled()})
    monkeypatch.setattr(current, "only", Runtime(machine.device(), library.Library(contents)))
    a, b, exact = operands(machine)
    result = product(a, b)
    if executes:
        with raises("ILLEGAL_ADDRESS"):
            result.get()
    else:
        assert not np.array_equal(result.get(), exact)


def test_dependent_launches_need_a_part_and_a_driver_that_have_them(monkeypatch):
    launch, image = Launch("kernel", 1, 32, 0, dependent=True), written(capability=(9, 0), specific=True)
    for version, expected in ((12030, True), (12020, False)):
        with installed(["h200"], version) as hopper:
            device = hopper.device()
            loaded(device, image, launch)(device.local.arguments, (), (), None)
            assert [each.dependent for each in hopper.context.launches] == [expected]
    with installed([PART]) as ampere:
        device = ampere.device()
        (function,) = device._modules.functions(library.code("extern", {}, "sm_86", written()), [launch])
        made = dependent.DependentLaunch(function, launch, 1, device._stream)
        made((1,), (32,), device.local.arguments[1], 0)  # refused by the library, and made by CuPy
        assert [each.dependent for each in ampere.context.launches] == [False]


def test_threads_have_streams_and_capture_modes_of_their_own(machine):
    seen, barrier = [], threading.Barrier(4)

    def work(number):
        barrier.wait()
        with machine.cupy.cuda.Stream.ptds:
            values = machine.cupy.asarray(np.full(4, number))
            seen.append((machine.cupy.cuda.get_current_stream().stream, (values + values).get().tolist()))
        barrier.wait()

    in_threads(work, range(4))
    assert len({id(stream) for stream, _ in seen}) == 4
    assert sorted(values for _, values in seen) == [[2 * number] * 4 for number in range(4)]
