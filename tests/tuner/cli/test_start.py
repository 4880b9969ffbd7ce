"""gensor-tune where a package of the extra [tune] is missing: one sentence with the command that installs it."""

import subprocess
import sys

import pytest

from gensor_kernels import install


@pytest.mark.parametrize("module", ["typer", "tqdm"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(module):
    code = f"import sys; sys.modules['{module}'] = None; from gensor_tuner.cli.start import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "archs"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gensor-tune: {module} is not installed: pip install 'gensor-kernels[tune]'\n"


def test_a_package_that_one_command_needs_is_named_by_this_command(monkeypatch, capsys, tmp_path):
    from gensor_database.store import Store
    from gensor_tuner.cli import start

    Store.open(tmp_path / "x.db").close()
    monkeypatch.setattr(start, "keep_interrupts", lambda: None)
    monkeypatch.setattr(sys, "argv", ["gensor-tune", "show", "--kernel", "ab", "--db", str(tmp_path / "x.db")])
    monkeypatch.delitem(sys.modules, "gensor_tuner.store.show", raising=False)
    monkeypatch.setitem(sys.modules, "sqlite_utils", None)
    with pytest.raises(SystemExit) as ended:
        start.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "gensor-tune: sqlite_utils is not installed: pip install 'gensor-kernels[tune]'\n"


def test_without_metadata_the_command_is_for_the_clone(monkeypatch):
    assert install.about(ModuleNotFoundError("No module named 'os.x'", name="os.x")) is None  # of no extra
    monkeypatch.setattr(install, "PACKAGE", "gensor-kernels-absent")
    assert install.command("tune") == "pip install '.[tune]' in the clone of gensor-kernels-absent"
