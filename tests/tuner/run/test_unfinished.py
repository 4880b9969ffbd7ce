"""An interrupted run leaves its walks and compilations to the next one, which stores the same rows."""

import json

import pytest

from gensor_database.record import Kernel, Record
from gensor_database.store import Store
from gensor_kernels.build import nvrtc
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.progress import Progress
from gensor_tuner.run.tune import Run
from gensor_tuner.run.unfinished import Unfinished
from gensor_tuner.shapes.reader import Row
from gensor_tuner.store.maintenance import BUILT
from gensor_tuner.strategies import request as walks
from tests.doubles.walks import remembered

ARCH = lookup("sm_87")
#: Each walk is really taken once for all tests.
ROWS = [Row(2 + i, f"row {i}", workload=matmul.workload(m, 64, 64, dtype="float64")) for i, m in enumerate((16, 32))]


class Interrupting(Progress):
    """Ctrl-C at the first compilation."""

    def __call__(self, stage: str, count: int) -> None:
        if stage == "compile":
            raise KeyboardInterrupt


def tuned(path, progress=None):
    """(walks taken, kernels compiled, rows stored, file of the unfinished)."""
    taken = []

    def search(request):
        taken.append(request)
        return remembered(request)

    real, walks.search = walks.search, search
    compiled = nvrtc.compile_count()
    unfinished = Unfinished.of(path)
    try:
        with Store.open(path) as store:
            run = Run(ARCH, store, Options(top=2, verify="none"), progress or Progress(), unfinished=unfinished)
            if progress is None:
                assert {result.status for _, result in run.rows(ROWS)} == {"ok"}
            else:
                with pytest.raises(KeyboardInterrupt):
                    list(run.rows(ROWS))
            records = {(row.key, row.kernel_digest, row.walk) for row in store.rows(Record)}
            kernels = {(row.program, row.binary_digest) for row in store.rows(Kernel)}
    finally:
        walks.search = real
    return len(taken), nvrtc.compile_count() - compiled, (records, kernels), unfinished.path


def test_finished_steps_are_not_repeated_and_the_rows_are_the_same(tmp_path):
    whole = tuned(tmp_path / "whole.db")
    walks, compiled, rows, path = tuned(tmp_path / "k.db", Interrupting())
    assert path.is_file() and not rows[0] and walks + compiled
    more_walks, more_compiled, resumed, _ = tuned(tmp_path / "k.db")
    assert walks + more_walks == whole[0]
    assert compiled + more_compiled - whole[1] in (0, 1)  # a compilation may have been in the middle
    assert more_compiled < whole[1]
    assert resumed == whole[2]
    assert not path.exists() and not whole[3].exists()


def test_a_file_of_another_version_is_no_hindrance(tmp_path):
    path = Unfinished.of(tmp_path / "k.db").path
    assert path.parent.name in BUILT and path.suffix in BUILT[path.parent.name]
    for text in ("", "{", "[]", json.dumps({"walks": {"k": {}}, "binaries": {}})):
        path.write_text(text)
        assert not Unfinished.of(tmp_path / "k.db").known
    path.unlink()
