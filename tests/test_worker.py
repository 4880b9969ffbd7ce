"""The worker process answers one request with one line, whatever the request is."""

import json
import subprocess
import sys

import pytest

from gensor_database.store import Store
from gensor_kernels.operators import matmul


def ask(text: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "gensor_tuner.worker"], input=text + "\n", capture_output=True, text=True, check=True
    )
    (line,) = done.stdout.splitlines()
    return json.loads(line)


@pytest.mark.parametrize(
    "request_text",
    ["", "not json", "[]", "{}", '{"workload": {}, "arch": "sm_87", "db": "x.db"}', '{"workload": null}'],
)
def test_a_bad_request_is_answered_not_raised(request_text):
    found = ask(request_text)
    assert found["status"] == "failed" and found["kernel"] is None and found["error"]


def test_it_tunes_into_the_database_it_is_told(tmp_path):
    workload = matmul.workload(16, 16, 32, dtype="float64")
    request = {"workload": json.loads(workload.key()), "arch": "sm_87", "db": str(tmp_path / "user.db")}
    found = ask(json.dumps(request))
    assert found["status"] == "ok", found
    with Store.open(tmp_path / "user.db", readonly=True) as store:
        entry = store.find(workload.key(), "sm_87")
        assert entry is not None and entry.usable and entry.kernel.digest == found["kernel"]
