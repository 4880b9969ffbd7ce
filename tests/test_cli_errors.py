"""What gensor-tune says when something is wrong: one sentence on stderr that helps, no traceback, an exit code."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from gensor_database.store import Store
from gensor_kernels.devices.emulator.build import compiler

cli = pytest.importorskip("gensor_tuner.cli")

HEADER = "op,m,n,k,dtype\n"


@pytest.fixture
def gensor_tune(monkeypatch, capsys, tmp_path):
    """gensor_tune("show", "--db", "x.db") -> (exit code, stdout, stderr); {} in an argument is a fresh folder."""
    (tmp_path / "bad.csv").write_text(HEADER + "matmul,12,x,3,fp16\nmatmul,1,2\nmatmul,1,1,1,fp8_e4m3\n")
    (tmp_path / "empty.csv").write_text(HEADER + "matmul,0,2,3,fp16\n")
    (tmp_path / "text.db").write_text("this is text, and more of it than a database has in its header\n" * 9)
    Store.open(tmp_path / "ours.db").close()

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gensor-tune", *(each.replace("{}", str(tmp_path)) for each in arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    return run


TUNE = ("--arch", "sm_87", "--shapes")
WRONG = {
    "no shapes": (("--arch", "sm_87"), "gensor-tune --arch sm_87 --shapes shapes.csv"),
    "unknown arch": (("--arch", "sm_88", "--shapes", "{}/empty.csv"), "known: sm_75, "),
    "missing shapes": ((*TUNE, "{}/none.csv"), "none.csv: cannot be read: No such file"),
    "a choice": ((*TUNE, "{}/empty.csv", "--measure", "maybe"), "one of auto, never, require"),
    "device": ((*TUNE, "{}/empty.csv", "--verify", "device"), "--verify device needs a GPU of sm_87: CuPy "),
    "json": ((*TUNE, "{}/empty.csv", "--db", "{}/ours.db", "--json", "{}/no/x.json"), "x.json: cannot be written"),
    "not a database": ((*TUNE, "{}/empty.csv", "--db", "{}/text.db"), "another database: --db FILE"),
    "absent database": (("show", "--db", "{}/none.db"), "tune into it first, or name another database with --db"),
    "no such kernel": (("show", "--db", "{}/ours.db", "--kernel", "abc"), "no kernel whose digest begins with 'abc'"),
    "unknown part": (("show", "--db", "{}/ours.db", "--arch", "orin"), "known: sm_75, "),
    "export": (("export", "{}/x.db", "--db", "{}/ours.db"), "needs --arch sm_XX"),
    "export to nowhere": (("export", "{}/no/x.csv", "--db", "{}/ours.db"), "x.csv cannot be written: No such file"),
    "subcommand": (("shwo",), "show"),
}


@pytest.mark.parametrize(("arguments", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_command_says_what_to_do(gensor_tune, arguments, words):
    code, out, err = gensor_tune(*arguments)
    assert code == 2 and words in err and "Traceback" not in err and not out


def test_bad_rows_are_named_and_the_others_go_on(gensor_tune):
    code, out, err = gensor_tune(*TUNE, "{}/bad.csv", "--db", "{}/ours.db", "--measure", "never")
    assert code == 1
    assert "bad.csv:2: column 'n': 'x' is not a whole number" in err and "bad.csv:3: has 3 fields" in err
    assert "unsupported" in out and "fp8_e4m3" in out and "2 failed, 1 unsupported" in err


def test_a_missing_compiler_says_how_to_install_it(gensor_tune, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    compiler.cache_clear()
    try:
        code, _, err = gensor_tune(*TUNE, "{}/empty.csv", "--db", "{}/ours.db")
    finally:
        compiler.cache_clear()
    assert code == 2 and "apt install g++" in err


def test_a_part_selects_the_records_of_its_capability(gensor_tune):
    for arch in ("sm_87", "orin-nano-8gb", "sm_999"):  # the last: a GPU that archs.toml does not list
        code, out, _ = gensor_tune("show", "--db", "{}/ours.db", "--arch", arch)
        assert code == 0 and "0 record" in out


def test_verify_tells_how_many_it_checked(gensor_tune):
    code, out, err = gensor_tune("verify", "--db", "{}/ours.db")
    assert (code, out) == (0, "") and "0 kernels of " in err
    assert Path(err.split(" of ")[1].split(" checked")[0]).name == "ours.db"
