"""Databases as gensor-tune show and export, sqlite-utils and Datasette see them, in the words of a model's author."""

import asyncio
import csv
import json
import re
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gensor_database import PRETUNED, Binary, Kernel, Record, Store, Verification, canonical
from gensor_kernels.build import resources
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.sass import Steady
from gensor_kernels.families.core.source import bind
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import candidate
from gensor_tuner.cli import tuning
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.result import find_result, provenance
from gensor_tuner.shapes.reader import read_shapes
from gensor_tuner.store.kernel_rows import kernel_rows as rows_of_a_run
from gensor_tuner.store.show import FIELDS, beginning, in_words, kernel_lines, record_lines
from gensor_tuner.store.uses import Use, name_records, newest, read, uses_of, with_uses, without
from tests.doubles.reported import timed
from tests.doubles.stored import ARCH, kernel_rows, lines, record_of, stock

SHIPPED = PRETUNED / "sm_87.db"


def test_the_source_of_a_kernel_follows_its_constants_and_a_foreign_capability_is_named(gensor_tune):
    with Store.open(SHIPPED, readonly=True) as store:
        kernel = min(store.rows(Kernel), key=lambda each: each.digest)
        binary = store.get(Binary, kernel.binary_digest)
    status, out, err = gensor_tune("show", "--db", SHIPPED, "--kernel", kernel.digest, "--source")
    assert status == 0 and not err
    _, others, _ = gensor_tune("show", "--db", SHIPPED, "--arch", "sm_90")
    assert "no record is of sm_90: the database has records of sm_8" in others
    head, _, _ = out.partition("#define")
    assert kernel.digest in head and kernel.family in head
    constants = json.loads(binary.constants)
    assert all(f"#define {name} {value}\n" in out for name, value in constants.items() if str(value)[0] != "-")
    assert f"// ---- {FAMILIES[kernel.family].source}" in out and "#line" not in out
    lines = out[len(head) :].expandtabs(4).splitlines()
    assert [line for line in lines if line] == bind(FAMILIES[kernel.family].code, constants).splitlines()


@pytest.mark.parametrize("width", [70, 80, 120, None])
def test_records_fit_a_terminal_and_are_complete_in_a_pipe(width):
    with Store.open(SHIPPED, readonly=True) as store:
        lines, digest = list(record_lines(store, None, False, width)), next(iter(store.rows(Kernel))).digest
        details = list(kernel_lines(store, digest, False, width))
    assert len(lines) > 500 and max(map(len, lines + details)) <= (width or 10_000)
    assert ("…" in "".join(lines)) == (width is not None) and (" expected " in lines[0]) == (width in (120, None))
    assert (max(map(len, details)) > 120) == (width is None)


def test_a_kernel_is_shown_in_words(gensor_tune):
    """No JSON, of which it consists, without --json."""
    with Store.open(SHIPPED, readonly=True) as store:
        kernel = store.get(Kernel, next(row.kernel_digest for row in store.rows(Record) if row.kernel_digest))
        constants = json.loads(store.get(Binary, kernel.binary_digest).constants)
        (verdict, *_) = store.rows(Verification, kernel_digest=kernel.digest)
    status, out, _ = gensor_tune("show", "--db", SHIPPED, "--kernel", kernel.digest)
    assert status == 0 and not re.search(r"[{}\[\]\"]", out)
    assert all(f" {name}={value}" in out for name, value in constants.items())
    case, name = json.loads(verdict.cases)[-1], json.loads(kernel.class_key)["operator"]
    assert f"operator={name}" in out and f"name={case['name']}" in out and out.count(" accumulator=") == 1
    assert all(f" counters.{name}={count}" in out for name, count in json.loads(verdict.counters)["counters"].items())
    status, out, _ = gensor_tune("show", "--db", SHIPPED, "--kernel", kernel.digest, "--json")
    (found,) = map(json.loads, out.splitlines())
    assert status == 0 and (found["kernel"], found["binary"]["constants"]) == (kernel.digest, constants)
    assert found["verified"][0]["cases"][-1] == case and found["serves"][0]["predicted_us"] > 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a":{"b":1,"c":[1,2]},"d":[{"e":null},{"e":"x y"}]}', "a.b=1 a.c=1,2 d.e=None; d.e=x y"),
        ("{}", ""),
        ("[[1],2]", "[1],2"),
        ("{", "unknown: {"),
        ("[" * 100000, "unknown: " + "[" * 200 + " ..."),
    ],
)
def test_json_is_read_as_words(text, words):
    assert in_words(text) == words


def test_a_source_that_cannot_be_shown_is_a_sentence(gensor_tune, tmp_path):
    for arguments, words in ((), "--source goes with --kernel DIGEST"), (("--kernel", ""), " kernels whose digest beg"):
        status, out, err = gensor_tune("show", "--db", SHIPPED, "--source", *arguments)
        assert status == 2 and words in err and not out
    gensor_tune("merge", SHIPPED, "-o", "{}/bare.db")
    with Store.open(tmp_path / "bare.db", readonly=True) as store:
        digest = next(iter(store.rows(Kernel))).digest
    status, out, err = gensor_tune("show", "--db", "{}/bare.db", "--kernel", digest, "--source")
    assert status == 2 and "gensor-tune refresh" in err and not out


@pytest.fixture
def exported(gensor_tune, tmp_path):
    """exported("x.csv") -> path of the file."""
    stock(tmp_path / "k.db", ((64, 64, 64), (32, 32, 32)), kernels=1)

    def made(name):
        code, out, _ = gensor_tune("export", tmp_path / name, "--db", "{}/k.db")
        assert code == 0 and out == f"2 records in {tmp_path / name}\n"
        return tmp_path / name

    return made


def test_every_format_has_the_same_records(exported):
    records = lines(exported("x.jsonl"))
    assert len(records) == 2 and json.loads(exported("x.json").read_text()) == records
    with exported("x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["sizes"] for row in rows] == [record["sizes"] for record in records] and list(rows[0]) == list(FIELDS)
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(exported("x.parquet"))
    assert table.to_pylist() == records
    assert str(table.schema.field("measured_us").type) == "double"


def test_a_database_of_one_capability_is_exported_without_its_name(gensor_tune, tmp_path):
    stock(tmp_path / "k.db", ((64, 64, 64),), kernels=1)
    code, out, _ = gensor_tune("export", "{}/x.db", "--db", "{}/k.db")
    assert code == 0 and out.endswith(" for sm_87\n")
    gensor_tune("export", "{}/y.db", "--db", "{}/k.db", "--arch", "sm_87")
    assert (tmp_path / "x.db").read_bytes() == (tmp_path / "y.db").read_bytes()
    with Store.open(tmp_path / "k.db") as store:
        store.add(Record(workload(2, 2, 2).key(), "sm_80", "a30", 1, None, None, 1.0, "failed"))
    code, _, err = gensor_tune("export", "{}/z.db", "--db", "{}/k.db")
    assert code == 2 and "has rows of sm_80, sm_87: --arch" in err and not (tmp_path / "z.db").exists()


def test_parquet_without_pyarrow_says_what_to_install(gensor_tune, exported, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = gensor_tune("export", "{}/x.parquet", "--db", "{}/k.db")
    assert code == 2 and err == "gensor-tune: writing .parquet needs pyarrow: pip install 'gensor-kernels[parquet]'\n"
    assert not (tmp_path / "x.parquet").exists()


@pytest.mark.skipif(resources.find_nvdisasm() is None, reason="nvdisasm is not installed")
def test_facts_have_the_steady_path_of_the_hot_loop():
    arch, family, work = lookup("sm_87"), FAMILIES["contraction_mma"], workload(512, 512, 512, dtype="float16")
    chosen = candidate(family, family.starters(work, arch)[0], work)
    binary = compile_cubin(chosen.source(), arch.target)
    facts = json.loads(rows_of_a_run(chosen, binary, work, arch)[1].facts)[chosen.entry]
    read = Steady(**facts["steady"])
    assert read == resources.disassemble(binary.cubin, binary.target)[chosen.entry].steady
    assert read.products["HMMA.16816.F32"] <= facts["hot_loop"]["HMMA"] and read.stalls >= read.instructions > 0
    earlier = {name: value for name, value in facts.items() if name != "steady"}
    assert Steady(**earlier.get("steady", {})) == Steady() and asdict(Steady())["products"] == {}


METADATA = Path(__file__).resolve().parents[3] / "docs" / "metadata.yml"


def test_rows_are_found_by_their_first_digits_and_a_source_of_merge_without_rows_is_named(gensor_tune, tmp_path):
    with Store.open(SHIPPED, readonly=True, immutable=True) as store:
        kernels = sorted(store.rows(Kernel), key=lambda kernel: kernel.digest)
        for prefix in ("", kernels[0].digest, kernels[0].digest[:2], "f", "g", "'", "\x00"):
            assert list(beginning(store, Kernel, prefix)) == [k for k in kernels if k.digest.startswith(prefix)]
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


SHAPES = """name,op,dtype,m,n,k,h,w,c,k_out,r,s,count,set
zeta,matmul,fp16,64,64,64,,,,,,,12,
pointwise,conv2d,fp16,,,,14,14,64,32,1,1,3,
alpha,matmul,fp16,64,64,64,,,,,,,2,head
"""


@pytest.fixture
def net(tmp_path):
    """A database with a record for each Workload of net.csv, by a run with default options; the rows."""
    (tmp_path / "net.csv").write_text(SHAPES)
    rows = read_shapes(tmp_path / "net.csv")
    with Store.open(tmp_path / "k.db") as store:
        for workload in {row.workload.key(): row.workload for row in rows}.values():
            found = kernel_rows(workload, 1)
            record = replace(record_of(workload, found[0][2]), provenance=provenance(Options()), bound_us=2.0)
            store.add(*found[0], record)
        name_records(store, ARCH.name, ARCH.part, "net", uses_of(rows, "net"))
    return rows


def test_names_order_words_and_calls_are_the_authors(gensor_tune, net, tmp_path):
    code, out, _ = gensor_tune("show", "--db", "{}/k.db")
    first = [line.split()[:3] for line in out.splitlines()[1:4]]
    assert code == 0
    assert first == [["net", "zeta", "matmul"], ["net", "pointwise", "conv2d"], ["head", "alpha", "matmul"]]
    assert "14x14x64 -> 32, 1x1" in out
    assert re.search(r"^net +zeta .* 12 .*\n(.*\n)*net on .*: 15 calls take ", out, re.M)
    assert re.search(r"^head on .*: 2 calls take ", out, re.M)
    gensor_tune("export", "{}/k.csv", "--db", "{}/k.db")
    with (tmp_path / "k.csv").open(newline="") as file:
        told = [(row["model"], row["name"], row["operator"], row["calls"]) for row in csv.DictReader(file)]
    calls = ("12", "3", "2")
    assert told == [(*each, count) for each, count in zip(map(tuple, first), calls, strict=True)]
    _, one, _ = gensor_tune("show", "--db", "{}/k.db", "--kernel", "")
    assert one.count("serves    zeta, alpha: 64x64x64 on ") == 1
    gensor_tune("report", "--db", "{}/k.db", "-o", "{}/r.html")
    page = (tmp_path / "r.html").read_text().replace("<wbr>", "")
    assert "zeta, alpha" in page and "net: 15 calls take" in page
    assert page.index(">zeta, alpha<") < page.index(">pointwise<")


def test_a_run_with_the_same_names_adds_no_record_and_resumes(net, tmp_path):
    with Store.open(tmp_path / "k.db") as store:
        before = set(store.rows(Record))
        name_records(store, ARCH.name, ARCH.part, "net", uses_of(net, "net"))
        assert set(store.rows(Record)) == before
        for record in newest(store):
            entry = store.find(record.key, record.arch, record.part)
            assert entry.record == record and without(record.provenance) == provenance(Options())
        stored = find_result(store, Workload.from_json(record.key), ARCH, Options(verify="none"))
        assert stored is not None and stored.stored


def test_rows_that_left_the_file_and_other_files_are_told_apart(net, tmp_path):
    with Store.open(tmp_path / "k.db") as store:
        name_records(store, ARCH.name, ARCH.part, "other", uses_of(net[:1], "other"))
        name_records(store, ARCH.name, ARCH.part, "net", uses_of(net[1:], "net"))
        found = sorted((use for record in newest(store) for use in read(record.provenance)), key=lambda use: use.name)
        assert [(use.file, use.name) for use in found] == [("net", "alpha"), ("net", "pointwise"), ("other", "zeta")]
        assert found[2].calls == 12 and found[1].op == "conv2d"


def test_a_new_record_takes_over_the_rows_of_other_files_and_malformed_ones_are_left_out():
    use = Use("net", 2, "a", "net", 1, "matmul", "1x1x1")
    first = with_uses('{"seed":0}', "{}", "net", [use])
    second = with_uses('{"seed":1}', first, "other", [replace(use, file="other", name="b")])
    assert json.loads(second)["seed"] == 1 and [each.name for each in read(second)] == ["a", "b"]
    assert without(second) == '{"seed":1}' == with_uses(with_uses(second, second, "net", []), "{}", "other", [])
    named = ({"line": 1}, {"name": "\x1b[31m", "line": "x"})
    for rows in (1, [], {"net": 1}, {"net": [1]}, *({"net": [each]} for each in named)):
        assert read(canonical({"rows": rows})) == [] == read('{"rows":' * 100_000)


def test_a_shipped_database_names_no_rows(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(tuning, "tune", lambda settings, _: asked.append(settings) or 0)
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path))
    Store.open(tmp_path / "pretune-sm_87.db").close()
    tuning.pretune("sm_87", tmp_path / "net.csv", tmp_path / "out.db", Options(), 0)
    assert asked[0].named is False
