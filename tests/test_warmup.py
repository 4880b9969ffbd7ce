"""Kernels loaded before they are asked for: of a shapes file, of a database, of everything stored."""

from contextvars import ContextVar
from dataclasses import replace

import pytest

import gensor_kernels
from gensor_database import Record, Store
from gensor_kernels.dispatch import api, library
from gensor_kernels.dispatch.runtime import Runtime
from gensor_kernels.errors import GensorError

from .emulated_store import isolate
from .numpy_device import ARCH, workload
from .racing import RacingDevice, kernels

SMALL, LARGE = workload(64, 64, 64), workload(2048, 2048, 2048)


@pytest.fixture
def runtime(monkeypatch, tmp_path):
    isolate(monkeypatch, tmp_path)
    found = kernels(SMALL)
    first, second, *_ = found
    made = Runtime(RacingDevice(), library.Library(library.Contents(found, {SMALL.key(): first, LARGE.key(): second})))
    monkeypatch.setattr(api, "_emulated", ContextVar("test", default=made))
    return made


def test_everything_stored(runtime):
    assert gensor_kernels.warmup() == 2 and runtime.loaded == set(runtime.library.contents.records.values())
    assert not runtime.plans and not runtime.device.races


def test_a_shapes_file(runtime, tmp_path):
    (tmp_path / "s.csv").write_text("op,m,n,k,dtype\nmatmul,64,64,64,fp32\nmatmul,64,64,64,fp64\nmatmul,x,64,64,fp32\n")
    assert gensor_kernels.warmup(tmp_path / "s.csv") == 1
    assert runtime.loaded == {runtime.library.contents.records[SMALL.key()]}


def test_a_database(runtime, tmp_path):
    """It says what will be asked for; the kernels are those of the databases in use."""
    with Store.open(tmp_path / "other.db") as store:
        for each in (SMALL, workload(64, 64, 64, dtype="float64")):
            store.add(Record(each.key(), ARCH.name, ARCH.part, 1, None, None, None, "failed"))
    assert gensor_kernels.warmup(tmp_path / "other.db") == 1


def test_inside_a_capture_the_first_call_launches(runtime):
    from .racing import products

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
