"""A residual in a database: which one counts, and what becomes of it in merges, exports, imports and prunings."""

import dataclasses
import json

import pytest

from gensor_database import Catalog, Residual, Store, export, merge, prune
from gensor_kernels.dispatch.selection import untrusted
from gensor_tuner.store import validation
from tests.doubles.store_rows import ARCH, residual, rows


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "kernels.db") as opened:
        yield opened


def test_the_newest_that_is_for_the_capability_counts(store):
    store.add(residual(created=5), residual(ARCH, created=7), residual("sm_80", created=9))
    assert Catalog([store], ARCH).residual() == residual(ARCH, created=7)
    assert Catalog([store], "sm_80").residual() == residual("sm_80", created=9)
    assert Catalog([store], "sm_75").residual() == residual(created=5)


def test_the_first_store_that_knows_one_is_asked_if_only_its_owner_writes_to_it(store, tmp_path):
    store.add(residual(created=5))
    with Store.open(tmp_path / "foreign.db", trusted=False) as foreign:
        foreign.add(residual(created=9))
        assert Catalog([foreign, store], ARCH).residual() == residual(created=5)
        assert Catalog([foreign], ARCH).residual() is None
    assert not untrusted.well_formed(residual())


def test_a_merge_takes_it_only_where_verdicts_are_taken(store, tmp_path):
    with Store.open(tmp_path / "other.db", trusted=False) as other:
        other.add(*rows(1), residual())
        assert merge(store, other)["residual"] == 0
        assert merge(store, other, binaries=True)["residual"] == 1


def test_an_export_has_the_one_that_counts(store, tmp_path):
    store.add(*rows(1), residual(created=5), residual(created=6), residual("sm_80", created=7))
    export(store, tmp_path / "out.db", ARCH)
    with Store.open(tmp_path / "out.db", readonly=True) as shipped:
        assert list(shipped.rows(Residual)) == [residual(created=6)]


def test_pruning_keeps_the_newest_for_each_capability(store):
    kept = [residual(created=6), residual(ARCH, created=2)]
    store.add(residual(created=5), residual(ARCH, created=1), *kept)
    assert prune(store).rows == {"residual": 2}
    assert sorted(store.rows(Residual), key=lambda row: row.digest) == sorted(kept, key=lambda row: row.digest)


def test_a_line_of_it_comes_back(store):
    line = validation.to_json(residual()).encode()
    assert validation.row_of(line) == residual()


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("{", "no residual"),
        ('{"version":99}', "not a residual of version"),
        (residual().model.decode().replace("[0.25]", "[[7777,0.0,1.0,2.0]]"), "a feature the model does not have"),
        (residual().model.decode().replace("[0.25]", "[1e999]"), "no finite number"),
        (residual().model.decode().replace("[0.25]", "[" * 500 + "]" * 500), "residual"),
        (residual().model.decode().replace('"parts":{}', '"parts":{"p":{"weight":1e9}}'), "damaged residual"),
    ],
)
def test_a_line_of_another_text_is_refused(model, reason):
    row = dataclasses.replace(residual(), model=model.encode())
    with pytest.raises(ValueError, match=reason):
        validation.row_of(validation.to_json(row).encode())
    with pytest.raises(ValueError, match="digest"):
        validation.row_of(json.dumps(json.loads(validation.to_json(residual())) | {"created": 1}).encode())
