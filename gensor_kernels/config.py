"""Settings from the environment, read when they are needed; `GENSOR_ACCELERATE` alone is read at import.

| variable | meaning |
| --- | --- |
| `GENSOR_CACHE_DIR` | folder for built files and for the user's database |
| `GENSOR_DB` | the user's database, the only one written |
| `GENSOR_SITE_DB` | a read-only database made elsewhere, for a fleet of boards |
| `GENSOR_TUNE` | `auto` (default), `now`, `predicted` or `off`; see `tune_mode` |
| `GENSOR_BACKGROUND` | `1` or `0`: tune hot calls while the program runs; default `1`, on integrated GPUs `0` |
| `GENSOR_RACE` | `0`: no call is timed in the program itself; default `1` |
| `GENSOR_COMPARE` | `0`: no kernel's first result is compared with the library's; default `1` |
| `GENSOR_DETERMINISTIC` | `1`: the kernel is a function of call, device and stored kernels, never of a timing |
| `GENSOR_DISABLE` | `1`: every call goes to CuPy |
| `GENSOR_ACCELERATE` | `1`, or names: the whole process runs inside `accelerate` once it has imported the package |
| `GENSOR_PLANS` | `0`: `load` keeps no plans in the cache folder; default `1` |
| `GENSOR_RECORD` | a shapes file to add every distinct call of the process to |
| `GENSOR_COUNT_HITS` | `1`: warm calls are counted too, see `gensor_kernels.counters` |
| `GENSOR_LOG` | `debug`, `info`, `warning` or `error`: log to stderr at this level |
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gensor_database import trust
from gensor_database.errors import is_first_report

from . import blocks
from .errors import ConfigError

if TYPE_CHECKING:
    import logging

TUNE_MODES = ("auto", "now", "predicted", "off")
LOG_LEVELS = ("debug", "info", "warning", "error")
_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
FOLDER_NAME = "gensor-kernels"

_warned: set[str] = set()


def warn_once(text: str) -> None:
    """Warn of something once per process."""
    if text not in _warned:
        _warned.add(text)
        with suppress(OSError, ValueError):  # a stderr that is closed
            warnings.warn(text, RuntimeWarning, stacklevel=3)


def _flag(name: str, default: str = "0") -> bool:
    return _choice(name, (*_ON, *_OFF), default) in _ON


def _choice(name: str, choices: tuple[str, ...], default: str) -> str:
    value = os.environ.get(name, "").strip().lower()
    if value and value not in choices:
        instead = f"using {default!r}" if default else "it is ignored"
        warn_once(f"{name}={value!r} is none of {', '.join(filter(None, choices))}; {instead}")
    return value if value in choices else default


def platform_cache_dir() -> Path:
    """Return this package's folder in the platform's cache folder; nothing is created."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return (Path(base) if base else Path.home() / "AppData" / "Local") / FOLDER_NAME
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / FOLDER_NAME
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative path.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / FOLDER_NAME


def cache_dir() -> Path:
    """Return the folder for built libraries and the user's database; created (mode 0700) when absent.

    Raises ConfigError if it cannot be created, or if another user could write to it (docs/trust.md): its files are
    loaded as code.
    """
    value = os.environ.get("GENSOR_CACHE_DIR")
    try:
        path = (Path(value).expanduser() if value else platform_cache_dir()).absolute()
        trust.make_folder(path)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        raise ConfigError(
            f"the cache folder cannot be used ({error}); set GENSOR_CACHE_DIR to a writable folder"
        ) from error
    found = trust.folder_objection(path, "GENSOR_CACHE_DIR")
    if found is not None:
        raise ConfigError(f"the cache folder is not used: {found}")
    return path


def user_database() -> Path:
    """Return the path of the user's database: `GENSOR_DB`, or `kernels.db` in the cache folder, which is then created.

    Raises ConfigError if there is none, also if another user can write to it, or could have (docs/trust.md).
    """
    path = _file("GENSOR_DB") or cache_dir() / "kernels.db"
    found = trust.file_objection(path, "GENSOR_DB")
    if found is not None:
        raise ConfigError(f"the kernel database {path} is not used: {found}")
    return path


def own_database() -> Path | None:
    """Return user_database, or None with one warning for calls that continue without it."""
    try:
        return user_database()
    except ConfigError as error:
        if is_first_report(Path(os.environ.get("GENSOR_DB", ""))):
            warn_once(f"what is measured and tuned is kept for this process only: {error}")
        return None


def site_database() -> Path | None:
    """Return the path in `GENSOR_SITE_DB`, or None; ConfigError if its home or working folder does not exist."""
    return _file("GENSOR_SITE_DB")


def _file(name: str) -> Path | None:
    value = os.environ.get(name)
    try:
        return Path(value).expanduser().absolute() if value else None
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{name}={value} cannot be used: {error}") from error


def record_file() -> Path | None:
    """Path in `GENSOR_RECORD`, or None."""
    value = os.environ.get("GENSOR_RECORD")
    return Path(value) if value else None


def accelerated() -> tuple[str, ...] | None:
    """Return the functions that `GENSOR_ACCELERATE` names, none of them for all functions, or None if it is off."""
    value = os.environ.get("GENSOR_ACCELERATE", "").strip()
    if not value or value.lower() in _OFF:
        return None
    return () if value.lower() in _ON else names_in(value)


def names_in(text: str) -> tuple[str, ...]:
    """Return the names in a text that separates them by commas."""
    return tuple(filter(None, map(str.strip, text.split(","))))


def counts_hits() -> bool:
    """Return whether `GENSOR_COUNT_HITS` asks to count warm calls, which adds some microseconds to each."""
    return _flag("GENSOR_COUNT_HITS")


def tune_mode() -> str:
    """Return `GENSOR_TUNE`, the work that calls may start.

    `auto`: repeated kinds of calls are raced once against the library, milliseconds each (dispatch/tuning/race.py), and
    hot kinds are tuned in the background (dispatch/tuning/background.py).  `now`: a first call waits for a verified
    kernel. `predicted`: as `auto`, and predictions are trusted where timings are missing.  `off`: none.
    """
    return _choice("GENSOR_TUNE", TUNE_MODES, "auto")


def background() -> bool | None:
    """Return `GENSOR_BACKGROUND`, whether hot calls are tuned while the program runs, or None if it is not set."""
    return _flag("GENSOR_BACKGROUND") if os.environ.get("GENSOR_BACKGROUND", "").strip() else None


def races() -> bool:
    """Return whether calls may be timed in the program itself, kernels against the library's call.

    A race waits for the caller's stream.  `GENSOR_RACE=0` is for programs that must not wait there, because work of the
    stream depends on the same thread, such as the other half of a collective (docs/dispatch.md).  `GENSOR_TUNE=off` and
    `GENSOR_DETERMINISTIC=1` forbid races too.
    """
    return _flag("GENSOR_RACE", "1") and tune_mode() != "off" and not deterministic()


def compares() -> bool:
    """Return whether a kernel's first result is compared with the library's before the kernel serves again.

    That waits for the caller's stream, which programs with `GENSOR_RACE=0` must not.
    """
    return _flag("GENSOR_COMPARE", "1") and _flag("GENSOR_RACE", "1") and not disabled()


def keeps_plans() -> bool:
    """Return whether models that `load` has read and planned are kept in the cache folder for the next process."""
    return _flag("GENSOR_PLANS", "1")


def deterministic() -> bool:
    """Return whether each call has one fixed kernel: by `GENSOR_DETERMINISTIC`, or within `deterministic`, in whose
    blocks threads without their own block take part."""
    return blocks.deterministic.own.get() is not None or bool(blocks.deterministic.open) or always_deterministic()


def always_deterministic() -> bool:
    """Return whether `GENSOR_DETERMINISTIC` requests one fixed kernel per call."""
    return _flag("GENSOR_DETERMINISTIC")


def disabled() -> bool:
    """Return whether `GENSOR_DISABLE` sends every call to CuPy."""
    return _flag("GENSOR_DISABLE")


def _stderr_handler() -> logging.Handler:
    """Return a handler that logs to stderr, since stdout is for data; lines that cannot be written are dropped."""
    import logging

    class Quiet(logging.StreamHandler):
        def handleError(self, record: logging.LogRecord) -> None:
            """Ignore errors: a closed stderr must not end the call that logs."""

    return Quiet()


def logger() -> logging.Logger:
    """Return the package's logger; silent unless the application, or `GENSOR_LOG`, gives it a handler."""
    import logging

    log = logging.getLogger("gensor_kernels")
    if not log.handlers:
        log.addHandler(logging.NullHandler())
        level = _choice("GENSOR_LOG", ("", *LOG_LEVELS), "")
        if level:
            handler = _stderr_handler()
            handler.setFormatter(logging.Formatter("%(name)s %(levelname)s: %(message)s"))
            log.addHandler(handler)
            log.setLevel(level.upper())
    return log
