"""Kernels loaded before their calls: of a shapes file, of a database, of all that is stored."""

import importlib
import logging
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

import gensor_kernels
from gensor_database import Record, Store
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library, load
from gensor_kernels.errors import GensorError
from tests.campaign_size import sample
from tests.doubles.device import FakeDevice, Race
from tests.doubles.kernels import ARCH, kernels, products, put, runtime_of, workload

ARCHS = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_120")
EMULATOR = "gensor_kernels.devices.emulator."
emulates = pytest.mark.usefixtures("needs_emulator")
#: The first layer of ResNet-50, whose kernels look at the window on the image.
FIRST_LAYER = dict(op="conv2d", dtype="fp16", batch=1, h=224, w=224, c=3, k_out=64, r=7, s=7, layout="NHWC")
FIRST_LAYER |= dict(stride_h=2, stride_w=2, pad_top=3, pad_bottom=3, pad_left=3, pad_right=3)
SMALL, LARGE = workload(64, 64, 64), workload(2048, 2048, 2048)


@pytest.fixture
def runtime(no_databases, monkeypatch):
    found = kernels(SMALL)
    first, second, *_ = found
    return put(monkeypatch, runtime_of(FakeDevice(clock=Race()), found, {SMALL.key(): first, LARGE.key(): second}))


def test_everything_stored(runtime):
    assert gensor_kernels.warmup() == 2 and runtime.loaded == set(runtime.library.contents.records.values())
    assert not runtime.plans and not runtime.device.races


def test_pins_of_a_block(runtime, tmp_path):
    """The first block loads the kernels that it would choose, the second those of the list."""
    path, stored = tmp_path / "kernels.json", set(runtime.library.contents.records.values())
    with gensor_kernels.deterministic(path):
        assert gensor_kernels.warmup() == 2
        products(current.current_runtime(), 2)
        assert current.current_runtime().loaded == stored and not runtime.loaded
    with gensor_kernels.deterministic(path):
        assert gensor_kernels.warmup() == 1
        assert current.current_runtime().loaded == {runtime.library.contents.records[SMALL.key()]}


def test_a_shapes_file(runtime, tmp_path):
    (tmp_path / "s.csv").write_text("op,m,n,k,dtype\nmatmul,64,64,64,fp32\nmatmul,64,64,64,fp64\nmatmul,x,64,64,fp32\n")
    assert gensor_kernels.warmup(tmp_path / "s.csv") == 1
    assert runtime.loaded == {runtime.library.contents.records[SMALL.key()]}


def test_a_database(runtime, tmp_path):
    """It names the Workloads; the kernels are those of the databases in use."""
    with Store.open(tmp_path / "other.db") as store:
        for each in (SMALL, workload(64, 64, 64, dtype="float64")):
            store.add(Record(each.key(), ARCH.name, ARCH.part, 1, None, None, None, "failed"))
    assert gensor_kernels.warmup(tmp_path / "other.db") == 1


def test_inside_a_capture_the_first_call_launches(runtime):
    runtime.device.is_capturing = True
    with pytest.raises(AssertionError):
        assert products(runtime, 1) == [55]
    runtime.device.is_capturing = False
    gensor_kernels.warmup()
    runtime.device.is_capturing = True
    assert products(runtime, 1) == [55]


def test_kernels_without_a_binary_are_not_compiled(runtime):
    plain = {
        digest: library.Kernel(digest, each.program, each.serves, lambda each=each: replace(each.code, cubin=b""))
        for digest, each in kernels(SMALL).items()
    }
    runtime.library = library.Library(library.Contents(plain, {SMALL.key(): next(iter(plain))}))
    assert gensor_kernels.warmup() == 0


def test_files_that_are_neither(runtime, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.csv"):
        gensor_kernels.warmup(tmp_path / "nothing.csv")
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    with pytest.raises(GensorError, match="no column 'op'"):
        gensor_kernels.warmup(tmp_path / "bad.csv")
    (tmp_path / "bad.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(GensorError, match=r"bad\.db"):
        gensor_kernels.warmup(tmp_path / "bad.db")


# ---- the shipped databases


def nothing_is_compiled(patch):
    def refuse(*arguments, **keywords):
        raise AssertionError("something is compiled")

    patch.setattr(importlib.import_module(EMULATOR + "build"), "_compile", refuse)
    patch.setattr("gensor_kernels.build.nvrtc.compile_cubin", refuse)


@pytest.fixture
def emulators():
    gensor_kernels.refresh()
    yield
    gensor_kernels.refresh()


@emulates
@pytest.mark.parametrize("arch", sample(ARCHS, 1))
def test_every_record_is_placed_on_the_emulator(arch, emulators, monkeypatch):
    """By the kernel that was tuned for it: chosen and bound, and not built."""
    nothing_is_compiled(monkeypatch)
    with gensor_kernels.emulated(arch):
        count, library = gensor_kernels.warmup(), current.current_runtime().library
        assert library.contents.records and count == len(set(library.contents.records.values()))


@pytest.mark.parametrize("arch", sample(["sm_87", "sm_90"], 1))
def test_every_stored_binary_is_loaded(arch, monkeypatch):
    nothing_is_compiled(monkeypatch)
    board = FakeDevice(arch, clock=Race())
    made = put(monkeypatch, Runtime(board, load.library(board.arch)))
    contents = load.read(board.arch)
    wanted = {fastest(contents.timings.get(key, ()), digest) for key, digest in contents.records.items()}
    assert gensor_kernels.warmup() == len(wanted) and made.loaded == wanted


def fastest(timings, recorded):
    """The kernel with the least time, or else the recorded one."""
    timed = [row for row in timings if row.kernel_digest is not None]
    return min(timed, key=lambda row: row.median_us).kernel_digest if timed else recorded


@emulates
def test_the_first_layer_of_resnet(emulators, monkeypatch, tmp_path):
    """The kernels of a file are built, once, and only these."""
    asked, device = [], importlib.import_module(EMULATOR + "device")
    monkeypatch.setattr(device, "is_built", lambda source: source in asked)
    monkeypatch.setattr(device, "build_many", lambda sources, done: asked.extend(sources))
    monkeypatch.setattr(device, "build", lambda source: tmp_path / "library.so" if source in asked else None)
    (tmp_path / "s.csv").write_text(f"{','.join(FIRST_LAYER)}\n{','.join(map(str, FIRST_LAYER.values()))}\n")
    with gensor_kernels.emulated("sm_87"):
        assert gensor_kernels.warmup(tmp_path / "s.csv") == 1
        runtime = current.current_runtime()
        kernel = runtime.library.kernel(*runtime.loaded)
        assert kernel.program.family == "contraction_strip" and asked == [kernel.code.source]
        assert gensor_kernels.warmup(tmp_path / "s.csv") == 1 and len(asked) == 1


@pytest.mark.parametrize("installed", [True, False])
def test_progress(runtime, monkeypatch, caplog, installed):
    """A bar where tqdm is installed; the log elsewhere."""
    bars = []

    class Bar:
        def __init__(self, total, **more):
            bars.append([total, 0])

        __enter__, __exit__ = lambda self: self, lambda self, *error: None

        def update(self):
            bars[-1][1] += 1

    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=Bar) if installed else None)
    with caplog.at_level(logging.INFO, "gensor_kernels"):
        assert gensor_kernels.warmup() == 2
    assert bars == ([[2, 2]] if installed else [])
    assert ("kernel 2 of 2" in caplog.text) is not installed
