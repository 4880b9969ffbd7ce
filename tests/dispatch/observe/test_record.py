"""Recordings: every distinct call with its count and tier, in a file that gensor-tune reads back."""

import csv
import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

from gensor_kernels import record
from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.observe import record as observe_record
from gensor_kernels.dispatch.observe import record_file
from gensor_tuner.shapes.reader import ShapesError, read_shapes
from tests.doubles.kernels import aligned, kernels, runtime_of, workload
from tests.project.test_packaging import ROOT
from tests.threads import in_threads


def rows(path):
    """The rows of a file as dictionaries."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def counts(path):
    """(m, count, tier) of every row, in the order of the file."""
    return [(int(row["m"]), int(row["count"]), int(row["tier"])) for row in rows(path)]


def product(made, m=2, k=3, n=4, dtype="float32"):
    return made.call(np.ones((m, k), dtype), np.ones((k, n), dtype), None, (), None, None)


# ---- counts and tiers


def test_counts_tiers_and_order_of_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    wanted = workload()
    made = runtime_of(stored=kernels(wanted, cubin=b""))
    a = aligned((64, 64))
    with record(tmp_path / "shapes.csv"):
        made.call(np.ones((3, 3)), np.ones((3, 3)), None, (), None, None)
        for _ in range(5):
            made.call(a, a, None, (), None, None)
        product(made, m=0)
    assert counts(tmp_path / "shapes.csv") == [(64, 5, 3), (0, 1, 0), (3, 1, 4)]
    assert {row["part"] for row in rows(tmp_path / "shapes.csv")} == {"orin-nano-8gb"}


def test_calls_with_copies_count_once(tmp_path, monkeypatch):
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    monkeypatch.setenv("GENSOR_COMPARE", "0")  # a kernel that is compared is launched twice
    made = runtime_of(stored=kernels(workload(), cubin=b""))
    a, out = aligned((64, 64)), aligned((2, 64, 64))
    with record(tmp_path / "shapes.csv"):
        made.call(a, a.astype(np.float16), None, (), None, None)  # converted
        made.call(out[0], a, out[0], (), None, None)  # through a temporary
    assert len(made.device.launched) == 2
    assert sum(count for _, count, _ in counts(tmp_path / "shapes.csv")) == 2


def test_products_count_by_the_tf32_switch_at_the_call(tmp_path, monkeypatch):
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    both = kernels(workload(math="tf32"), cubin=b"") | kernels(workload(), cubin=b"")
    made, a = runtime_of(stored=both), aligned((64, 64))
    with record(tmp_path / "shapes.csv"):
        for made.device.allows_tf32 in (True, False, False):
            made.call(a, a, None, (), None, None)
    assert {row["dtype"]: row["count"] for row in rows(tmp_path / "shapes.csv")} == {"tf32": "1", "fp32": "2"}


def test_calls_without_a_workload_or_a_result(tmp_path):
    made, path = runtime_of(), tmp_path / "shapes.csv"
    with record(path):
        for dtype in ("int64", "uint16"):
            product(made, dtype=dtype)
        made.call(np.ones((2, 2)), np.ones((2, 2)), None, (Operation("relu"),) * 7, None, None)
        with pytest.raises(ValueError, match="mismatch"):
            made.call(np.ones((2, 3)), np.ones((2, 3)), None, (), None, None)
        with pytest.raises(TypeError):
            made.call(np.ones((2, 3)), [1], None, (), None, None)
    read = {(row["dtype"], row["epilogue"].count("relu"), row["count"]) for row in rows(path)}
    assert read == {("int64", 0, "1"), ("uint16", 0, "1"), ("fp64", 7, "1")}
    for row in read_shapes(path):
        assert row.error is None and row.workload is None and len(row.unsupported) > 20


def test_a_recording_ends_without_a_trace(tmp_path):
    made = runtime_of()
    warm = made.find
    with record(tmp_path / "shapes.csv"):
        assert made.find is not warm and runtime_of().find(()) is None
        product(made)
    assert made.find == made.plans.get and len(made.plans) == 1 and not observe_record.active
    product(made)
    assert counts(tmp_path / "shapes.csv") == [(2, 1, 4)]
    assert [each.name for each in tmp_path.iterdir()] == ["shapes.csv"]  # no partial file, no lock


# ---- blocks and threads


def test_repeated_blocks_add_to_the_file(tmp_path):
    made, path = runtime_of(), tmp_path / "shapes.csv"
    for m in (2, 2, 5):
        with record(path):
            product(made, m)
    assert counts(path) == [(2, 2, 4), (5, 1, 4)]
    before = path.read_bytes()
    with pytest.warns(RuntimeWarning, match="nothing was recorded"), record(path):
        pass
    assert path.read_bytes() == before
    with pytest.warns(RuntimeWarning, match=r"compile a PyTorch module .*accelerate"), record(tmp_path / "none.csv"):
        pass
    with pytest.raises(ShapesError, match="has a header and no rows"):
        read_shapes(tmp_path / "none.csv")


def test_nested_blocks_and_blocks_with_errors(tmp_path, recwarn):
    made, outer, inner = runtime_of(), tmp_path / "outer.csv", tmp_path / "inner.csv"
    with pytest.raises(KeyboardInterrupt), record(outer):
        product(made)
        with record(inner), record(str(outer)):  # the same file once more
            product(made)
        assert not outer.exists() and counts(inner) == [(2, 1, 4)]
        product(made)
        raise KeyboardInterrupt
    assert counts(outer) == [(2, 3, 4)] and counts(inner) == [(2, 1, 4)] and not observe_record.active
    with pytest.raises(KeyError), record(tmp_path / "none.csv"):
        raise KeyError
    assert not recwarn.list and (tmp_path / "none.csv").exists()  # without a warning


def test_threads_lose_no_count(tmp_path):
    made, barrier = runtime_of(), threading.Barrier(8)

    def work(_):
        barrier.wait()
        for i in range(300):
            product(made, 2 + i % 3)

    with record(tmp_path / "shapes.csv"):
        in_threads(work, range(8))
    assert counts(tmp_path / "shapes.csv") == [(2, 800, 4), (3, 800, 4), (4, 800, 4)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_counts_its_own_calls(tmp_path):
    made, path = runtime_of(), tmp_path / "shapes.csv"
    with record(path):
        product(made)
        (mine,) = observe_record.active
        with mine.lock, observe_record._lock:  # held by a thread that the child does not have
            child = os.fork()
        if child == 0:
            try:
                product(made, m=7)
                for each in observe_record.active:
                    each.write()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert counts(path) == [(7, 1, 4)]
    assert counts(path) == [(2, 1, 4), (7, 1, 4)]


# ---- processes


PROGRAM = """
import os, sys
import numpy as np
from tests.doubles.device import FakeDevice
from tests.doubles.kernels import runtime_of
made = runtime_of()
os.chdir("/")
os.environ["GENSOR_RECORD"] = "/another.csv"
for _ in range(3):
    runtime_of().call(np.ones((2, 3)), np.ones((3, 4)), None, (), None, None)
raise SystemExit(int(sys.argv[1]))
"""


def test_the_environment_records_a_process_and_processes_share_a_file(tmp_path):
    environment = {**os.environ, "GENSOR_RECORD": "shapes.csv", "PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(i)], cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
        for i in range(2)
    ]
    assert [(each.communicate()[1], each.returncode) for each in started] == [(b"", i) for i in range(2)]
    assert counts(tmp_path / "shapes.csv") == [(2, 6, 4)]
    assert [each.name for each in tmp_path.iterdir()] == ["shapes.csv"]


# ---- files


def test_impossible_layouts_are_errors_that_name_their_column(tmp_path):
    path = tmp_path / "shapes.csv"
    header = "op,m,n,k,dtype,layout_a,layout_b,layout_c,align_a,align_b,order,epilogue"
    for cells, column, reason in (
        ("s,,,,,row,none", None, ""),
        (",,,2,,row,bias;gelu;tanh", None, ""),
        (",,,16,,row,none", "align_a", "'16' is not one of 2: axis k has 14 bytes"),
        ("s,,,4,,row,none", "align_a", "read one by one"),
        (",,,3,,row,none", "align_a", "is not one of 16, 8, 4, 2, 1"),
        ("n,,,,,row,none", "layout_a", "is not one of m, k, s"),
        (",,m,,,row,none", "layout_c", "is not one of n, s"),
        (",,,,2,col,none", "order", "cannot stand beside 'align_b'"),
        (",,,,,row,bias;gelu_tahn", "epilogue", "operation 'tahn' is unknown: did you mean tanh?"),
        (",,,,,row,relu;relu;relu;relu;relu;relu;relu", "epilogue", "at most 6"),
    ):
        path.write_text(f"{header}\nmatmul,8,16,7,fp16,{cells}\n")
        (row,) = read_shapes(path)
        if column is None:
            assert row.error is None and row.workload.align["a"] == 2
        else:
            assert f"shapes.csv:2: column '{column}'" in row.error and reason in row.error


def warned(path, made):
    """The one warning of a recording to `path`; its calls are served."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with record(path):
            assert product(made)[0, 0] == 3
            product(made)
    (only,) = caught
    assert only.category is RuntimeWarning and not observe_record.active
    return str(only.message)


def test_a_file_that_cannot_be_used_is_one_warning_and_left_as_it_is(tmp_path):
    made = runtime_of()
    own = tmp_path / "shapes.csv"
    for text in ("op,m,n,k\nmatmul,1,2,3\n", "a diary", "\x00\xff", ",".join(record_file.COLUMNS) + "\nmatmul,1\n"):
        own.write_text(text, encoding="latin-1")
        assert "is no recording" in warned(own, made)
        assert own.read_text(encoding="latin-1") == text
    assert "no-such-folder" in warned(tmp_path / "no-such-folder" / "x.csv", made)
    assert "is no regular file" in warned(tmp_path, made)
    assert "calls are not recorded" in warned("~no-such-user-at-all/x.csv", made)
    with pytest.raises(TypeError, match="not int"), record(7):
        pass


def test_a_disk_that_fills_up_is_one_warning_and_the_file_as_it_was(tmp_path, monkeypatch):
    made, path = runtime_of(), tmp_path / "shapes.csv"
    with record(path):
        product(made)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            assert "2 recorded calls are lost" in warned(path, made)
        assert path.read_bytes() == before and [each.name for each in tmp_path.iterdir()] == ["shapes.csv"]


def test_links_and_permissions_of_the_file_stay(tmp_path):
    made, target, link = runtime_of(), tmp_path / "target.csv", tmp_path / "link.csv"
    target.touch(mode=0o600)
    link.symlink_to(target)
    with record(link):
        product(made)
    assert link.is_symlink() and counts(target) == [(2, 1, 4)] and target.stat().st_mode & 0o777 == 0o600


def test_a_lock_that_is_never_released_is_waited_for_once(tmp_path, monkeypatch):
    """In a folder that others can write to, the lock file can be another user's."""
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(record_file, "PATIENCE", 0.1)
    path, lock = tmp_path / "shapes.csv", tmp_path / ".shapes.csv.lock"
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.warns(RuntimeWarning, match="no longer waits for it"):
        record_file.update(path, {(("op", "matmul"),): 2})
    os.close(descriptor)
    assert path.read_text().count("\n") == 2 and lock.exists()  # it is not ours to delete
    lock.unlink()
    lock.symlink_to(tmp_path / "victim")
    record_file.update(path, {(("op", "matmul"),): 3})
    assert ",5," in path.read_text() and lock.is_symlink() and not (tmp_path / "victim").exists()
