"""Databases as sqlite-utils and Datasette see them."""

import asyncio
import shutil
from pathlib import Path

import pytest

from gensor_database import PRETUNED, Kernel, Record, Store
from gensor_tuner.shapes.reader import read_shapes
from gensor_tuner.store.show import beginning
from gensor_tuner.store.uses import name_records, uses_of
from tests.doubles.reported import timed
from tests.doubles.stored import ARCH, stock

METADATA = Path(__file__).resolve().parents[3] / "docs" / "metadata.yml"
SHIPPED = PRETUNED / "sm_87.db"


def test_rows_are_found_by_their_first_digits():
    with Store.open(SHIPPED, readonly=True, immutable=True) as store:
        kernels = sorted(store.rows(Kernel), key=lambda kernel: kernel.digest)
        for prefix in ("", kernels[0].digest, kernels[0].digest[:2], "f", "g", "'", "\x00"):
            assert list(beginning(store, Kernel, prefix)) == [k for k in kernels if k.digest.startswith(prefix)]


def test_a_source_of_merge_without_rows_is_named(gensor_tune, tmp_path):
    Store.open(tmp_path / "empty.db").close()
    code, out, err = gensor_tune("merge", "{}/empty.db", "--db", "{}/k.db")
    assert code == 0 and out == "nothing new\n" and err == f"gensor-tune: {tmp_path / 'empty.db'} has no rows\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """served("/kernels/models") -> rows, from a tuned database with timings and a shipped one."""
    app = pytest.importorskip("datasette.app")
    from datasette.utils import parse_metadata

    folder = tmp_path_factory.mktemp("served")
    made = stock(folder / "kernels.db", ((64, 64, 64), (32, 32, 32)), kernels=1)
    rows = "".join(f"layer {w.size['m']},matmul,fp32,{w.size['m']},{w.size['n']},{w.size['k']},3\n" for w in made)
    (folder / "net.csv").write_text(f"name,op,dtype,m,n,k,count\n{rows}")
    uses = uses_of(read_shapes(folder / "net.csv"), "net")
    with Store.open(folder / "kernels.db") as store:
        assert {record.key for record in store.rows(Record)} == set(uses)
        name_records(store, ARCH.name, ARCH.part, "net", uses)
    timed(folder / "sm_90.db", every=50)
    shutil.copy(SHIPPED, folder / "sm_87.db")
    served = app.Datasette(
        [str(folder / "kernels.db"), str(folder / "sm_90.db")],
        immutables=[str(folder / "sm_87.db")],
        metadata=parse_metadata(METADATA.read_text()),
    )

    def get(path):
        async def fetched():
            await served.invoke_startup()
            return await served.client.get(f"{path}.json?_shape=array&_size=max")

        response = asyncio.run(fetched())
        assert response.status_code == 200, response.text
        return response.json()

    return get


def test_datasette_speaks_of_models_and_rows(served):
    assert [(row["name"], row["calls"], row["sizes"]) for row in served("/kernels/rows")] == [
        ("layer 64", 3, "64x64x64"),
        ("layer 32", 3, "32x32x32"),
    ]
    (model,) = served("/kernels/models")
    assert (model["model"], model["rows"], model["calls"]) == ("net", 2, 6)
    assert len(served("/kernels/record")) == 4  # tables are also there: superseded records are not views


@pytest.mark.parametrize("name", ["kernels", "sm_87", "sm_90"])
def test_datasette_has_views_of_every_database(served, name):
    records, kernels = served(f"/{name}/records"), served(f"/{name}/kernels")
    assert records and kernels and {row["kernel"] for row in records} <= {row["kernel"] for row in kernels}
    timings = served(f"/{name}/timings")
    assert bool(timings) == (name == "sm_90") and all(row["ours_us"] and row["library_us"] for row in timings)
