"""export --json and import: rows that come back, lines that are refused, and code only on request."""

import dataclasses
import io
import json
import sys

import pytest

from gensor_database import PRETUNED, Binary, Kernel, Portfolio, Record, Store, Timing, Verification
from gensor_database.record import TABLES
from gensor_kernels.families.registry import program_from_json
from gensor_tuner.store import validation as grammar
from tests.campaign_size import sample
from tests.doubles.store_rows import everything

SHIPPED = PRETUNED / "sm_87.db"

DATA = (Kernel, Portfolio, Record)  # tables without code
LINKED = (Binary, Kernel, Portfolio, Record, Verification)  # their rows are stored for some of the kernels


@pytest.fixture(scope="module")
def shipped():
    """Rows of the shipped database, by table, and a timing, of which it has none."""
    with Store.open(SHIPPED, readonly=True, immutable=True) as store:
        found = {kind: list(store.rows(kind)) for kind in TABLES}
    # A Program with block_m first, and a Workload with m.
    found[Kernel].sort(key=lambda row: not row.family.startswith("contraction"))
    found[Record].sort(key=lambda row: '"operator":"matmul"' not in row.key)
    record = found[Record][0]
    found[Timing] = [Timing(record.key, record.arch, record.part, record.kernel_digest, None, 12.5, created=7)]
    return found


def test_with_binaries_everything_comes_back(gensor_tune, tmp_path, shipped):
    kernels = {row.digest: row.binary_digest for row in sample(shipped[Kernel], 80)}
    with Store.open(tmp_path / "own.db") as store:
        for rows in shipped.values():
            named = {row: getattr(row, "kernel_digest", None) or row.digest for row in rows}
            store.add(*(row for row, name in named.items() if not isinstance(row, LINKED) or name in kernels))
            store.add(*(row for row in rows if isinstance(row, Binary) and row.digest in kernels.values()))
    code, out, _ = gensor_tune("export", "{}/rows.jsonl", "--json", "--binaries", "--db", "{}/own.db")
    assert code == 0 and f"{len(kernels)} kernel" in out
    code, out, err = gensor_tune("import", "{}/rows.jsonl", "--binaries", "--db", "{}/copy.db")
    assert (code, err) == (0, "") and everything(tmp_path / "copy.db") == everything(tmp_path / "own.db")
    assert gensor_tune("import", "{}/rows.jsonl", "--binaries", "--db", "{}/copy.db") == (0, "nothing new\n", "")


def test_without_binaries_no_code_and_no_verdict_leaves_or_enters(gensor_tune, tmp_path, shipped):
    gensor_tune("export", "{}/all.jsonl", "--json", "--binaries", "--db", str(SHIPPED))
    gensor_tune("export", "{}/data.jsonl", "--json", "--db", str(SHIPPED), "--arch", "orin-nano-8gb")
    assert {json.loads(line)["table"] for line in (tmp_path / "data.jsonl").open()} == {"kernel", "portfolio", "record"}
    for name in ("all", "data"):
        code, _, err = gensor_tune("import", f"{{}}/{name}.jsonl", "--db", f"{{}}/{name}.db")
        assert code == 0 and "none is usable yet" in err and ("--binaries takes them" in err) == (name == "all")
        with Store.open(tmp_path / f"{name}.db", readonly=True) as store:
            data = {kind.TABLE: len(shipped[kind]) for kind in DATA}
            assert store.counts() == data | dict.fromkeys(("source", "binary", "verification", "timing"), 0)
            kernel = store.kernels_for_class(shipped[Kernel][0].class_key, "sm_87")[0]
            assert not kernel.usable and kernel.binary() is None
    gensor_tune("export", "{}/none.jsonl", "--json", "--db", str(SHIPPED), "--arch", "sm_80")
    assert (tmp_path / "none.jsonl").read_text() == ""


def test_through_a_pipe(gensor_tune, monkeypatch, tmp_path, shipped):
    code, out, err = gensor_tune("export", "-", "--json", "--db", str(SHIPPED))
    assert code == 0 and len(out.splitlines()) == sum(len(shipped[kind]) for kind in DATA)
    assert f"{len(shipped[Kernel])} kernel" in err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(out.encode())))
    code, out, _ = gensor_tune("import", "-", "--db", "{}/copy.db")
    assert code == 0 and f"{len(shipped[Record])} record" in out


def altered(row, **values):
    """A row with other values and the digest that fits them, as somebody who means harm would write it."""
    return grammar.to_json(dataclasses.replace(row, **values)).encode()


def body(row, **values):
    """The same with values that a row cannot have, and the digest of the true one."""
    return json.dumps(json.loads(grammar.to_json(row)) | values).encode()


def hostile(shipped):
    kernel, record, timing = shipped[Kernel][0], shipped[Record][0], shipped[Timing][0]
    portfolio, verdict = shipped[Portfolio][0], shipped[Verification][0]
    program = json.loads(kernel.program)
    canonical = program_from_json
    wide = canonical({**program, "block_m": 2**20}).to_json()
    extra = json.dumps({**program, "grid": 7}, sort_keys=True, separators=(",", ":"))
    key = json.loads(record.key)

    def keyed(**values):
        return altered(record, key=json.dumps(key | values, sort_keys=True, separators=(",", ":")))

    yield altered(kernel, program=wide), "has values that"
    yield altered(kernel, program=extra), "program has the integers"
    yield altered(kernel, program=kernel.program + " "), "canonical"
    yield (
        altered(kernel, family="contraction_other", program=kernel.program.replace(kernel.family, "x")),
        "another family",
    )
    yield altered(kernel, class_key="{}"), "is not a valid kernel"
    yield altered(kernel, class_key="[" * 100_000), "is not a valid kernel"
    yield altered(kernel, arch="sm_87; rm -rf"), "'arch' is malformed"
    yield altered(kernel, arch="sm_99"), "did you mean sm_90?"
    yield altered(kernel, binary_digest="../../etc/passwd"), "'binary_digest' is malformed"
    yield keyed(operator="conv9d"), "conv9d"
    yield keyed(sizes={"m": 1}), "has the sizes"
    yield keyed(sizes=key["sizes"] | {"m": 2**40}), "a size is no integer"
    yield keyed(sizes=key["sizes"] | {"m": True}), "a size is no integer"
    yield keyed(layout=key["layout"] | {"a": "z"}), "'layout'"
    yield keyed(epilogue=["explode"]), "explode"
    yield altered(record, key=record.key.replace(":", ": ", 1)), "canonical"
    yield altered(record, part="a part"), "'part' is malformed"
    yield altered(record, walk="{"), "is not JSON"
    yield altered(record, created=2**60), "out of range"
    yield altered(timing, median_us=0.0), "not above 0"
    yield altered(timing, kernel_digest="7"), "'kernel_digest' is malformed"
    yield altered(portfolio, rank=-1), "out of range"
    yield altered(verdict, kernel_digest=""), "'kernel_digest' is malformed"
    yield body(record, outcome="splendid"), "outcome"
    yield body(record, predicted_us=1.5), "does not match its digest"
    yield body(timing, vendor="cublas"), "never of both"
    yield body(kernel, abi=True), "neither text nor a number"
    yield body(kernel, abi="1"), "is not a valid kernel"
    yield body(kernel, table="sqlite_master"), "'table' is not one of"
    yield body(kernel, table=["kernel"]), "'table' is not one of"
    yield body(kernel, note="more"), "has the columns"
    yield body(record, error="\ud800"), "surrogates"
    yield grammar.to_json(timing).replace("12.5", "NaN").encode(), "NaN is not a number"
    yield grammar.to_json(timing).replace("12.5", "1e999").encode(), "out of range"
    yield grammar.to_json(timing).replace('"created":7', '"created":7,"created":7').encode(), "occurs twice"
    yield b"[" * 100_000, "not a JSON object"
    yield b'"text"', "not a JSON object"
    yield b"\xff\xfe", "UTF-8"
    yield b"{'a': 1}", "is not JSON"


def test_hostile_lines_are_refused_with_a_reason_and_the_others_go_on(gensor_tune, tmp_path, shipped):
    lines = list(hostile(shipped))
    good = [grammar.to_json(row).encode() for row in (shipped[Kernel][0], shipped[Record][0], shipped[Timing][0])]
    for line, words in lines:
        with pytest.raises(ValueError) as refused:
            grammar.row_of(line)
        assert words in str(refused.value) and len(str(refused.value)) < 600
    blank_and_long = [b"", b"{" + b" " * (5 * 2**20) + b"}"]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join([*good[:1], *(line for line, _ in lines), *blank_and_long, *good]))
    code, out, err = gensor_tune("import", "{}/rows.jsonl", "--db", "{}/copy.db")
    assert (code, out) == (1, "1 kernel, 1 record, 1 timing\n")
    assert f"rows.jsonl:2: {lines[0][1][:5]}"[:12] in err and f"{len(lines) + 1} lines were refused" in err
    assert "Traceback" not in err and err.count("rows.jsonl:") == len(lines) + 1
    kernel = dataclasses.replace(shipped[Kernel][0], abi=shipped[Kernel][0].abi + 1)
    assert grammar.row_of(grammar.to_json(kernel).encode()) == kernel
