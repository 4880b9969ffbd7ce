"""benchmarks.call_path: what counts as a file and as a move, and the short way of a warm call."""

import importlib
import sys
import threading

import pytest

from benchmarks import call_path

MODULES = {
    "top": "from lib import low\ndef work(): low.one(); low.one(); return sorted([2, 1], key=low.two)\n",
    "low": "def one(): from lib import late; late.three()\ndef two(x): return x\n",
    "late": "from lib import low\nlow.two(1)\ndef three(): pass\n",
}


@pytest.fixture
def top(tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    for name, text in MODULES.items():
        (tmp_path / "lib" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("lib.top")
    for name in [name for name in sys.modules if name.partition(".")[0] == "lib"]:
        del sys.modules[name]


def test_files_and_moves_are_of_functions_not_of_imports(top, tmp_path):
    for _ in range(2):  # the first call imports a module, whose body calls a function
        with call_path.Trace(tmp_path, ["lib"]) as trace:
            top.work()
        assert trace.files == {"lib/top.py", "lib/low.py", "lib/late.py"}
        # Twice top -> low -> late -> low -> top, then each of two keys top -> low -> top.
        assert trace.moves == 2 * 4 + 2 * 2


def test_files_of_other_threads_count_and_their_moves_do_not(top, tmp_path):
    with call_path.Trace(tmp_path, ["lib"]) as trace:
        thread = threading.Thread(target=top.work)
        thread.start()
        thread.join()
    assert len(trace.files) == 3 and trace.moves == 0


def test_a_warm_call_passes_through_two_files(capsys):
    pytest.importorskip("cupy")
    assert call_path.main(["--only", "warm-matmul", "--list"]) == 0
    counts, *files = capsys.readouterr().out.split("\n\n")
    assert int(counts.split()[-2]) <= 2 and "gensor_kernels/dispatch/api/matmul.py" in files[0]
