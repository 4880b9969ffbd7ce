"""Shards: each class in one share, whatever the order of rows; merged, they have the rows of a whole run."""

import json
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gensor_database.record import Portfolio, Record
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.run.many import Shard
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import Row
from tests.campaign_size import FULL
from tests.doubles.store_rows import everything

#: dtype and columns of classes
CLASSES = [("float32", 64), ("float64", 64), ("float16", 64), ("int8", 64), ("float32", 63)]
ARCHS = [lookup(part) for part in ("orin-nano-8gb", "agx-orin-64gb", "h200")]


def row(line, kind, m):
    dtype, columns = CLASSES[kind]
    return Row(line, f"row {line}", workload=matmul.workload(8 * m, columns, 64, dtype=dtype))


@given(
    st.lists(st.tuples(st.integers(0, len(CLASSES) - 1), st.integers(1, 9)), max_size=30),
    st.integers(1, 9),
    st.randoms(use_true_random=False),
)
def test_every_class_is_in_one_share_whatever_the_order(drawn, count, random):
    rows = [row(2 + line, *each) for line, each in enumerate(drawn)] + [Row(99, "bad", error="no operator")]
    owners, loads = {}, []
    for number in range(1, count + 1):
        shares = Shard(number, count).rows([rows] * len(ARCHS), ARCHS)
        load = set()
        for arch, share in zip(ARCHS, shares, strict=True):
            for each in share:
                key = arch.name, each.workload.class_key() if each.workload else ""
                assert owners.setdefault(key, number) == number
                load |= {(arch.part, each.workload.key())} if each.workload else set()
        loads.append(len(load))
        shuffled = random.sample(rows, len(rows))
        again = Shard(number, count).rows([shuffled] * len(ARCHS), ARCHS)
        assert [sorted(each.line for each in share) for share in again] == [[e.line for e in s] for s in shares]
    shares = [share for number in range(count) for share in Shard(number + 1, count).rows([rows] * len(ARCHS), ARCHS)]
    assert sum(map(len, shares)) == len(ARCHS) * len(rows)
    assert owners["sm_87", ""] == owners["sm_90", ""] == 1
    keys = {each.workload.key(): each.workload.class_key() for each in rows if each.workload}
    assert max(loads) - min(loads) <= 2 * max(Counter(keys.values()).values(), default=0)


def test_other_texts_are_refused():
    for text in ("0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/3/5", "01/3"):
        with pytest.raises(ValueError, match="--shard takes I/N with 1 <= I <= N"):
            Shard.of(text)


SHAPES = """op,m,n,k,dtype,shape,axes
matmul,16,64,64,fp64,,
matmul,32,64,64,fp32,,
matmul,64,64,64,fp32,,
softmax,,,,fp32,32x64,1
matmul,16,,64,fp32,,
"""


@pytest.fixture
def tuned(gensor_tune, tmp_path, monkeypatch, needs_emulator):
    """tuned("name", options ...) -> (exit code, stdout and stderr) of a run into that database."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    (tmp_path / "shapes.csv").write_text(SHAPES)
    more = ("--arch", "sm_80", "--arch", "sm_87", "--top", "2", "--jobs", "1", "--measure", "never", "-q")

    def run(name, *options):
        code, out, err = gensor_tune("--shapes", "{}/shapes.csv", "--db", f"{{}}/{name}.db", *more, *options)
        return code, out + err

    return run


def test_shards_are_merged_to_the_rows_of_one_run(tuned, gensor_tune, tmp_path):
    assert tuned("whole")[0] == 1  # a row is bad
    whole = everything(tmp_path / "whole.db")
    kinds = Counter(type(row) for row in whole.values())
    assert kinds[Record] == 8 and kinds[Portfolio]
    for count in (1, 3, 7) if FULL else (3,):
        names = []
        for number in range(1, count + 1):
            names.append(f"{count}-{number}")
            code, err = tuned(names[-1], "--shard", f"{number}/{count}")
            assert code == (1 if number == 1 else 0) and f"shard {number}/{count}: " in err and "stopped" not in err
            assert (":6:" in err) == (number == 1)
        files = [f"{{}}/{name}.db" for name in names]
        assert gensor_tune("merge", *files, "-o", f"{{}}/{count}.db", "--binaries")[0] == 0
        assert everything(tmp_path / f"{count}.db") == whole
    before = everything(tmp_path / "3-1.db")
    assert tuned("3-1", "--shard", "1/3")[0] == 1 and everything(tmp_path / "3-1.db") == before


@pytest.mark.nightly
def test_shards_of_one_database_leave_each_other_alone(tuned, tmp_path):
    """Records name the rows of the whole file, in any order of shards."""
    tuned("whole")
    for shard in ("2/2", "1/2", "2/2"):
        tuned("both", "--shard", shard)
    assert everything(tmp_path / "both.db") == everything(tmp_path / "whole.db")


@pytest.mark.parametrize("number", [1, 2])
def test_only_the_rows_of_a_share_are_counted(gensor_tune, tmp_path, number):
    """A budget of nothing skips rows instead of tuning them."""
    (tmp_path / "shapes.csv").write_text(SHAPES)
    files = ("--shapes", "{}/shapes.csv", "--db", "{}/k.db", "--json", "{}/rows.jsonl", "-q")
    code, table, err = gensor_tune("--arch", "sm_87", *files, "--budget", "0", "--shard", f"{number}/2")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["line"] for row in rows] == ([6, 3, 4], [2, 5])[number - 1]
    assert code == 1 and len(table.splitlines()) == 1 + len(rows) and "stopped" not in err
    head, *lines = err.splitlines()
    assert f"gensor-tune: shard {number}/2: {number} of 3 classes, {len(rows)} of 5 rows for sm_87 (" in head
    assert (":6:" in table) == (number == 1)
    skipped = sum(row["status"] == "skipped" for row in rows)
    assert any(line.startswith(f"gensor-tune: shard {number}/2: ") and f"{skipped} skipped" in line for line in lines)


def test_a_run_that_is_interrupted_counts_the_rows_of_its_share_which_may_be_empty(tuned, tmp_path, monkeypatch):
    code, err = tuned("k", "--shard", "9/9")
    assert code == 0 and "shard 9/9: 0 of 6 classes, 0 of 10 rows" in err
    assert "stopped" not in err and "no rows" not in err and not everything(tmp_path / "k.db")

    def interrupted(self, by_key, executor, whole=False):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(Run, "tuned", interrupted)
    code, err = tuned("k", "--shard", "1/2")
    rows = re.search(r"shard 1/2: \d of 6 classes, (\d) of 10 rows for", err)[1]
    assert code == 130 and f"gensor-tune: shard 1/2: stopped after 2 of {rows} rows\n" in err  # the bad row, twice
