"""Settings: read late, from the environment, with one sentence when they cannot be used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gensor_database import StoreError
from gensor_kernels import config
from gensor_kernels.errors import ConfigError, GensorError, UnsupportedError


def test_unusable_cache_folder_names_the_variable(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path / "file" / "sub"))
    with pytest.raises(ConfigError, match="GENSOR_CACHE_DIR"):
        config.cache_dir()


@pytest.mark.skipif(sys.platform != "linux", reason="XDG folders")
def test_platform_folder_follows_xdg_and_ignores_a_relative_one(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert config.platform_cache_dir() == tmp_path / "x" / "gensor-kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert config.platform_cache_dir() == tmp_path / ".cache" / "gensor-kernels"


def test_databases(tmp_path, monkeypatch):
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("GENSOR_DB", raising=False)
    monkeypatch.delenv("GENSOR_SITE_DB", raising=False)
    assert config.user_database() == tmp_path / "kernels.db"
    assert config.site_database() is None
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "mine.db"))
    monkeypatch.setenv("GENSOR_SITE_DB", str(tmp_path / "site.db"))
    assert config.user_database().name == "mine.db"
    assert config.site_database().name == "site.db"


def test_modes_and_flags_and_one_warning_of_unknown_modes(monkeypatch):
    for name in ("GENSOR_TUNE", "GENSOR_DETERMINISTIC", "GENSOR_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    assert (config.tune_mode(), config.deterministic(), config.disabled()) == ("auto", False, False)
    monkeypatch.setenv("GENSOR_TUNE", " Predicted ")
    monkeypatch.setenv("GENSOR_DETERMINISTIC", "1")
    monkeypatch.setenv("GENSOR_DISABLE", "true")
    assert (config.tune_mode(), config.deterministic(), config.disabled()) == ("predicted", True, True)
    # an unknown mode
    monkeypatch.setenv("GENSOR_TUNE", "sometimes")
    with pytest.warns(RuntimeWarning, match="GENSOR_TUNE='sometimes'"):
        assert config.tune_mode() == "auto"
    assert config.tune_mode() == "auto"


def test_errors_share_a_base_and_unsupported_keeps_its_reason():
    assert UnsupportedError("no fp8 here").reason == "no fp8 here"
    assert issubclass(ConfigError, GensorError) and issubclass(UnsupportedError, GensorError)
    assert issubclass(StoreError, GensorError)  # a database that cannot be used is caught with the others


def test_log_level_from_the_environment():
    code = "from gensor_kernels import config; config.logger().info('hello')"
    environment = {**os.environ, "GENSOR_LOG": "info"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.strip().endswith("gensor_kernels INFO: hello") and not done.stdout


def test_every_tune_mode_is_explained():
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "settings.md"
    rows = page.read_text(encoding="utf-8").splitlines()
    assert all(any(row.startswith(f"| `GENSOR_TUNE={mode}` |") for row in rows) for mode in config.TUNE_MODES)
