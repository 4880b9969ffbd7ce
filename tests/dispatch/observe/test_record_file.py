"""Files of recordings: rows that read back, and files that are no recordings."""

import os
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_kernels import record
from gensor_kernels.dispatch.observe import record as observe_record
from gensor_kernels.dispatch.observe import record_file
from gensor_kernels.operators.products.matmul import workload_from_operands
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.workload import View
from gensor_tuner.shapes.reader import read_shapes
from tests.doubles.kernels import runtime_of

from .test_record import counts, product


@st.composite
def views(draw):
    """Three operands of a product with any strides, offsets and extents, 0 and 1 too."""
    extent = st.sampled_from([0, 1, 2, 3, 8, 12, 16, 64])
    batch, m, n, k = draw(st.sampled_from([1, 1, 3])), draw(extent), draw(extent), draw(extent)
    dtype = draw(st.sampled_from(["float64", "float32", "float16", "bfloat16", "int8"]))
    wider = {"int8": ["int8", "int32", "float32"], "float16": ["float16", "float32"]}.get(dtype, [dtype])
    found = []
    for rows_, columns, kind in ((m, k, dtype), (k, n, dtype), (m, n, draw(st.sampled_from(wider)))):
        steps = draw(st.sampled_from([(columns, 1), (1, rows_), (columns + 1, 1), (2 * columns, 2), (0, 1), (-64, 1)]))
        lead = draw(st.sampled_from([rows_ * columns, 0, 1024]))
        size = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}.get(kind, 4)
        address = draw(st.sampled_from([width for width in (16, 8, 4, 2, 1) if width >= size]))
        found.append(View((batch, rows_, columns), (lead, *steps), kind, address))
    math = draw(st.sampled_from(["ieee", "tf32"])) if dtype == "float32" else "ieee"
    return found, math, draw(st.lists(st.sampled_from(sorted(OPERATIONS)), max_size=6))


@settings(max_examples=30)
@given(st.lists(views(), min_size=5, max_size=25))
def test_every_workload_reads_back_as_itself(tmp_path_factory, drawn):
    wanted = [workload_from_operands(*found, math=math, epilogue=names) for found, math, names in drawn]
    path = tmp_path_factory.mktemp("recorded") / "shapes.csv"
    served = record_file.Served(4, "orin-nano-8gb")
    record_file.update(path, {record_file.workload_row(each, served): 1 for each in wanted})
    read = read_shapes(path)
    assert not [row.error or row.unsupported for row in read if row.workload is None]
    assert {row.workload.key() for row in read} == {each.key() for each in wanted}


def test_separators_of_epilogues(tmp_path):
    assert record_file.join(("bias", "gelu", "tanh")) == "bias;gelu;tanh"  # gelu_tanh is one operation
    assert record_file.join(("bias", "gelu_tanh")) == "bias_gelu_tanh" and record_file.join(()) == "none"


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
