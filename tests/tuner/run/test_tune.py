"""gensor-tune end to end on a small file: results, resume, errors, and the subcommands over what it stored."""

import json
import os
import re
import subprocess
import sys

import pytest

from gensor_database.record import Binary, Kernel, Record
from gensor_database.store import Store
from gensor_kernels.families.registry import program_from_json
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.run.result import STAGES
from gensor_tuner.search.trace import replay

SHAPES = """name,op,dtype,m,n,k,batch,epilogue
first,matmul,fp16,40,64,64,,bias_relu
again,matmul,fp16,40,64,64,,bias_relu
second,matmul,fp16,24,64,96,2,none
old,matmul,fp4_e2m1,16,16,16,,none
bad,matmul,fp16,x,64,64,,none
"""
KEYS = {
    *("workload", "status", "kernel", "family", "program", "predicted_us", "bound_us", "measured_us", "vendor_us"),
    *("verified", "registers", "spill_bytes", "shared_bytes", "seconds", "error"),
}


def gensor_tune(*arguments, check=None, **environment):
    command = [sys.executable, "-m", "gensor_tuner.cli.app", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert check is None or done.returncode == check, done.stderr
    return done


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "shapes.csv").write_text(SHAPES)
    arguments = ("--arch", "sm_87", "--shapes", folder / "shapes.csv", "--db", folder / "k.db", "--top", 2)
    done = gensor_tune(*arguments, "--json", folder / "out.json", check=1)
    lines = [json.loads(line) for line in (folder / "out.json").read_text().splitlines()]
    return folder, arguments, done, {line["name"]: line for line in lines}


def test_every_row_ends_as_it_should(tuned):
    _, _, done, lines = tuned
    assert done.stdout.startswith("name") and len(done.stdout.splitlines()) == 1 + 5
    assert "compilation" in done.stderr
    statuses = dict(first="ok", again="ok", second="ok", old="unsupported", bad="failed")
    assert {name: line["status"] for name, line in lines.items()} == statuses
    assert "shapes.csv:6: column 'm'" in done.stdout and "fp4_e2m1" in lines["old"]["error"]
    assert lines["first"]["kernel"] == lines["again"]["kernel"]
    for line in lines.values():
        assert set(line) >= KEYS and set(line["seconds"]) == set(STAGES)  # as documented
        if line["status"] == "ok":
            assert line["verified"] == "emulator" and line["registers"] > 0 and line["program"]["level"] == 2
            assert line["bound_us"] > 0 and line["predicted_us"] > 0


def test_a_second_run_resumes_without_compiling(tuned):
    folder, arguments, _, lines = tuned
    done = gensor_tune(*arguments, "--json", folder / "again.json", check=1)
    assert " 0 compilations" in done.stderr
    again = {x["name"]: x for x in map(json.loads, (folder / "again.json").read_text().splitlines())}
    for name, line in lines.items():
        kept = {key: value for key, value in line.items() if key != "seconds"}
        assert {key: value for key, value in again[name].items() if key != "seconds"} == kept


def test_the_store_holds_kernels_records_and_a_portfolio(tuned):
    with Store.open(tuned[0] / "k.db", readonly=True) as store:
        records = list(store.rows(Record))
        assert len(records) == 2 and {record.outcome for record in records} == {"ok"}
        for record in records:
            kernel = store.get(Kernel, record.kernel_digest)
            space = Space(Workload.from_json(record.key), lookup("sm_87"))
            assert replay(space, record.walk) == program_from_json(kernel.program)
            assert any(leg["path"] for leg in json.loads(record.walk)["legs"])
        assert store.portfolio("sm_87", records[0].part, kernel.class_key)


def test_subcommands_read_it(tuned, tmp_path):
    folder = tuned[0]
    shown = gensor_tune("show", "--db", folder / "k.db", check=0).stdout
    assert "40x64x64" in shown and "2 record" in shown
    digest = tuned[3]["first"]["kernel"]
    one = gensor_tune("show", "--db", folder / "k.db", "--kernel", digest[:9], check=0).stdout
    assert digest in one and "block_m=" in one and "EPILOGUE_CODES" in one
    into = ("merge", folder / "k.db", "--db", tmp_path / "m.db")
    gensor_tune(*into, check=0)
    with Store.open(tmp_path / "m.db", readonly=True) as store:
        assert not any(store.kernel(row.digest).usable or store.binary(row) for row in store.rows(Kernel))
    assert re.fullmatch(r"\d+ binary, \d+ verification\n", gensor_tune(*into, "--binaries", check=0).stdout)
    gensor_tune("export", tmp_path / "ship.db", "--db", tmp_path / "m.db", "--arch", "sm_87", check=0)
    checked = gensor_tune("verify", "--db", tmp_path / "ship.db", "--rebuild", "--execute", check=0).stdout
    assert checked and all(line.endswith(" ok") for line in checked.splitlines())


def test_nothing_depends_on_hash_seed_home_folder_or_jobs(tuned, tmp_path):
    contents = []
    for jobs, seed in ((1, "1"), (2, "77")):
        home = tmp_path / seed
        home.mkdir()
        cache = {"HOME": str(home), "GENSOR_CACHE_DIR": str(home / "cache"), "PYTHONHASHSEED": seed}
        done = gensor_tune(*tuned[1][:4], "--db", home / "k.db", "--top", 2, "--jobs", jobs, check=1, **cache)
        count = int(re.findall(r"(\d+) compilation", done.stderr)[-1])
        with Store.open(home / "k.db", readonly=True) as store:
            kernels = sorted((each.program, each.binary_digest) for each in store.rows(Kernel))
            cubins = sorted((each.source_digest, each.constants, each.cubin) for each in store.rows(Binary))
        contents.append((count, kernels, cubins))
    assert contents[0] == contents[1]
    assert contents[0][0] > 0


def test_doctor_prints_a_report(tmp_path):
    report = gensor_tune("doctor", check=0).stdout
    assert "nvrtc       nvrtc 12" in report and "g++" in report and "GENSOR_CACHE_DIR=" in report
