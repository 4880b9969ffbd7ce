"""Trust: writers of loaded files and folders, and actions that no file's text can cause."""

import ast
import os
import signal
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from gensor_database import PRETUNED, Store, trust
from gensor_database import connection as sql
from gensor_database.connection import translated
from gensor_database.errors import CorruptStoreError
from gensor_database.record import TABLES
from gensor_kernels import config
from gensor_kernels.build import nvrtc
from gensor_kernels.dispatch.selection import untrusted
from gensor_kernels.errors import ConfigError, GensorError, UnsupportedError
from gensor_kernels.families.core import source
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space
from gensor_kernels.families.validation import program_of
from gensor_kernels.machine.arch import lookup
from gensor_tuner.shapes.reader import read_shapes
from tests.campaign_size import sample
from tests.doubles.store_rows import ARCH, PART, add_rows, key, rows, umask
from tests.project.structure import imported_names, module_name

ROOT = Path(__file__).resolve().parents[2]
SETTING = "GENSOR_DB"


def folder(tmp_path, mode=0o700, name="own"):
    made = tmp_path / name
    made.mkdir()
    made.chmod(mode)
    return made


def test_a_folder_that_others_can_write_to_is_refused_and_the_command_is_named(tmp_path):
    made = folder(tmp_path)
    for mode in (0o700, 0o750, 0o755):
        made.chmod(mode)
        assert trust.folder_objection(made, SETTING) is None
        assert trust.file_objection(made / "kernels.db", SETTING) is None
        assert trust.file_objection(made / "not" / "yet" / "kernels.db", SETTING) is None
    group, everybody = "its group: run chmod go-w", "everybody: run chmod go-w"
    for mode, words in ((0o775, group), (0o757, everybody), (0o1777, "shares")):
        made.chmod(mode)
        said = trust.folder_objection(made, SETTING)
        assert words in said and str(made) in said and SETTING in said
        if "chmod" in words:  # the message's advice helps
            os.system(said.partition("run ")[2].partition(",")[0])
            assert trust.folder_objection(made, SETTING) is None


@pytest.mark.parametrize("look", [lambda path: trust.folder_objection(path, SETTING), lambda path: opened(path)])
def test_a_folder_that_others_can_replace_is_refused(tmp_path, monkeypatch, look):
    above = folder(tmp_path, name="team")
    inside = folder(folder(above, name="me"), name="cache")
    monkeypatch.setattr(trust, "_is_personal", lambda group: False)
    assert look(inside) is None
    above.chmod(0o775)
    assert "its group can write to" in look(inside) and f"run chmod g-w {above}" in look(inside)
    monkeypatch.setattr(trust, "_is_personal", lambda group: True)
    assert look(inside) is None
    above.chmod(0o757)
    assert "everybody can write to" in look(inside)
    above.chmod(0o1777)
    assert look(inside) is None
    above.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(above, 4321, -1)
        assert f"{above} belongs to another user" in look(inside)
        monkeypatch.setattr(trust, "_unknown_users", lambda: 4321)  # a container that knows no user but one
        assert look(inside) is None


def opened(path):
    """Return the reason why a folder is refused while it is opened, step by step."""
    try:
        os.close(trust.open_folder(path))
    except PermissionError as error:
        return str(error)


def test_a_folder_is_opened_without_following_it(tmp_path):
    made = folder(tmp_path)
    (made / "file").write_text("here")
    (tmp_path / "link").symlink_to(made)
    (tmp_path / "home").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        trust.open_folder(tmp_path / "link")
    descriptor = trust.open_folder(tmp_path / "home" / "own")
    made.rename(tmp_path / "away")
    folder(tmp_path)
    assert os.listdir(descriptor) == ["file"]
    os.close(descriptor)


def test_a_group_of_one_user_alone_is_nobody_else(monkeypatch):
    import grp
    import pwd

    me, group = pwd.getpwuid(os.geteuid()), SimpleNamespace(gr_name="me", gr_mem=[])
    own, other = (SimpleNamespace(pw_name=name, pw_uid=uid, pw_gid=7) for name, uid in (("me", me.pw_uid), ("you", 99)))
    users = [own]
    monkeypatch.setattr(grp, "getgrgid", lambda number: group)
    monkeypatch.setattr(pwd, "getpwuid", lambda number: own)
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    personal = trust._is_personal.__wrapped__
    for name, members, alone in (
        *(("me", [], True), ("me", ["me"], True), ("me", ["me", "you"], False)),
        ("staff", [], False),  # its members cannot be listed
    ):
        group.gr_name, group.gr_mem = name, members
        assert personal(7) is alone
    group.gr_name = "me"
    users.append(other)
    assert not personal(7)


def test_folders_are_made_private_all_the_way_under_any_umask(tmp_path):
    with umask(0):
        trust.make_folder(tmp_path / "one" / "two" / "three")
    assert all(path.stat().st_mode & 0o777 == 0o700 for path in (tmp_path / "one").rglob("*"))
    trust.make_folder(tmp_path / "one")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        trust.make_folder(tmp_path / "file")


def test_links_are_refused_but_not_above(tmp_path):
    made = folder(tmp_path, name="data")
    (tmp_path / "home").symlink_to(tmp_path)  # a home folder on another disk
    assert trust.folder_objection(tmp_path / "home" / "data", SETTING) is None
    (tmp_path / "link").symlink_to(made)
    said = trust.folder_objection(tmp_path / "link", SETTING)
    assert "symbolic link" in said and str(made) in said
    (made / "link.db").symlink_to(made / "kernels.db")
    assert "symbolic link" in trust.file_objection(made / "link.db", SETTING)


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    made = folder(tmp_path)
    os.chown(made, 4321, -1) if os.geteuid() == 0 else monkeypatch.setattr(os, "geteuid", lambda: 4321)
    said = trust.folder_objection(made, SETTING)
    if os.stat(made).st_uid:  # root's are everybody's
        assert "belongs to another user" in said and "run chown" in said


def test_the_cache_folder_is_private_and_others_get_one_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path / "one" / "cache"))
    monkeypatch.delenv("GENSOR_DB", raising=False)
    with umask(0o002):
        assert config.cache_dir() == tmp_path / "one" / "cache"
    assert config.cache_dir().stat().st_mode & 0o777 == 0o700
    config.cache_dir().chmod(0o770)
    for refused in (config.cache_dir, config.user_database):
        with pytest.raises(ConfigError, match="chmod go-w"):
            refused()
    monkeypatch.setenv("GENSOR_DB", str(folder(tmp_path, 0o777) / "kernels.db"))
    with pytest.warns(RuntimeWarning, match="kept for this process only: .*chmod go-w"):
        assert config.own_database() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert config.own_database() is None


@pytest.mark.parametrize("path", sample(sorted(PRETUNED.glob("*.db")), 1), ids=lambda path: path.stem)
def test_rows_that_this_version_writes_pass_as_foreign_ones(path):
    with Store.open(path, readonly=True, immutable=True, trusted=True) as store:
        checked = [row for kind in TABLES for row in sample(list(store.rows(kind)), 500)]
    assert len(checked) > 100 and all(map(untrusted.well_formed, checked))


def test_the_shipped_databases_are_whole_files():
    """They are small, with no journal to be applied and no free pages: the package has no further file."""
    assert "sm_87.db" in {path.name for path in PRETUNED.glob("*.db")}
    for path in PRETUNED.glob("*.db"):
        assert path.stat().st_size <= 10 * 2**20
        assert path.read_bytes()[18:20] == b"\x01\x01", "in WAL mode"
        assert not [each.name for each in PRETUNED.iterdir() if each.name.startswith(f"{path.name}-")]
        with Store.open(path, readonly=True, immutable=True) as store:
            assert store.connection.execute("PRAGMA freelist_count").fetchone() == (0,)
            assert store.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


STATEMENTS = (
    "ATTACH '/tmp/elsewhere.db' AS other",
    "CREATE TRIGGER t AFTER INSERT ON kernel BEGIN DELETE FROM kernel; END",
    "CREATE VIEW v AS SELECT 1",
    "CREATE TEMP TABLE t (a)",
    "ALTER TABLE kernel ADD COLUMN more",
    "UPDATE kernel SET abi = 1",
    "PRAGMA writable_schema=ON",
    "SELECT load_extension('x')",
    "SELECT randomblob(1000000000)",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
)


def test_foreign_statements_are_refused_and_endless_ones_interrupted(tmp_path):
    connection = sql.connect(tmp_path / "k.db", "rwc", 1)
    connection.execute("CREATE TABLE kernel (abi)")
    for statement in STATEMENTS:
        with pytest.raises(sql.sqlite3.DatabaseError, match=r"prohibited|not authorized"):
            connection.execute(statement)
    connection.executemany("INSERT INTO kernel VALUES (?)", [(1,)] * 400)
    with pytest.raises(sql.sqlite3.OperationalError, match="interrupted"):
        connection.execute("SELECT count(*) FROM kernel a, kernel b, kernel c, kernel d")


def interrupt(*_):
    raise KeyboardInterrupt


def test_ctrl_c_while_sqlite_prepares_or_computes_is_no_damaged_file(tmp_path, monkeypatch):
    """sqlite3 drops exceptions of its callbacks, the only Python code that runs while it computes."""
    signal.signal(signal.SIGALRM, interrupt)
    with Store.open(tmp_path / "k.db") as store:
        store.connection.executemany("INSERT INTO source VALUES (?, '')", [(str(n),) for n in range(400)])
        with monkeypatch.context() as only, pytest.raises(KeyboardInterrupt), translated(store.path):
            only.setattr(sql, "_ALLOWED", MagicMock(__contains__=interrupt))
            store.connection.execute("SELECT count(*) FROM source")
        try:
            with pytest.raises(KeyboardInterrupt), translated(store.path):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                store.connection.execute("SELECT count(*) FROM source a, source b, source c, source d").fetchone()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)


@pytest.mark.parametrize("name", ["interrupted", "not authorized", "x is prohibited"])
def test_no_name_in_a_file_looks_like_ctrl_c(name, tmp_path):
    """sqlite3 quotes the names of a damaged schema."""
    path = tmp_path / "hostile.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute(f'CREATE TABLE "{name}" (a)')
        made.execute("PRAGMA writable_schema=ON")
        made.execute("UPDATE sqlite_master SET sql = 'CREATE TABLE ('")
        made.commit()
    with pytest.raises(sqlite3.DatabaseError, match=name):
        sql.connect(path, "ro", 1.0)
    with pytest.raises(CorruptStoreError):
        Store.open(path, readonly=True)


UNPICKLING = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "copyreg"}
#: Two modules exchange objects with their own child processes, over pipes that no other process can reach. The third
#: one ends the processes that Dask has started.
MULTIPROCESSING = {"tuner/fleet/worker.py", "tuner/tasks/local.py", "tuner/verify/device_process.py"}
#: Conditions of families' rules are constants of the sources; `python -m gensor_kernels run` executes a user's program.
ALLOWED = {"eval": "gensor_kernels/families/core/rules.py", "exec": "gensor_kernels/dispatch/accelerated/running.py"}


def test_nothing_is_unpickled_evaluated_or_passed_to_a_shell():
    paths = [path for package in ("database", "gensor_kernels", "tuner") for path in (ROOT / package).rglob("*.py")]
    for path in paths:
        name, tree = path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())
        modules = {names[-1].partition(".")[0] for names in imported_names(tree, module_name(name), False)}
        assert not modules & UNPICKLING and (name in MULTIPROCESSING or "multiprocessing" not in modules), name
        for node in ast.walk(tree):
            where = f"{name}:{getattr(node, 'lineno', 0)}"
            assert not (isinstance(node, ast.keyword) and node.arg == "allow_pickle"), where
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "multiprocessing":
                assert name != "tuner/fleet/worker.py" or node.attr == "active_children", where
            if isinstance(node, ast.Call):
                called = getattr(node.func, "id", None) or getattr(node.func, "attr", "")
                assert ALLOWED.get(called, name) == name, where
                assert called != "popen" and ast.unparse(node.func) != "os.system", where
                # typer's get_completion_script writes a script for a shell and starts none
                assert called == "get_completion_script" or all(word.arg != "shell" for word in node.keywords), where


HOSTILE = (
    *("sm_87 -I/etc", "sm_87;id", "-I/etc/passwd", "$(id)", "`id`", "sm_87\n-DX", "sm_87\0", "../sm_87", "sm_８７", ""),
    *("'; DROP TABLE kernel; --", "@/etc/passwd", "--options-file=/etc/passwd", "sm_87 -"),
)


def test_hostile_text_reaches_neither_compiler_nor_sql(tmp_path):
    add_rows(tmp_path / "k.db", *rows(1))
    for text in HOSTILE:
        for name in (text, text.upper()):
            with pytest.raises(GensorError):
                lookup(name)
        made = nvrtc.compile_cubin("__global__ void f() {}", text)
        assert made.error and "is not a compile target" in made.error and not made.cubin
        for constants in ({"BLOCK_M": text}, {text: 1}, {"BLOCK_M": 2**70}):
            with pytest.raises(ValueError, match=r"constant|parameter"):
                source.bind("#ifndef BLOCK_M\n#define BLOCK_M 1\n#endif\n", constants)
        with Store.open(tmp_path / "k.db") as store:
            assert store.find(text, text, text) is None and store.kernel(text) is None
            assert store.find(key(1), ARCH, PART) is not None


@pytest.mark.parametrize("arch", sample(["sm_75", "sm_87", "sm_90"], 1))
def test_programs_of_every_family_and_operator_pass_as_foreign_ones(arch):
    """For any sizes of their Workloads, which a class does not determine."""
    seen = set()
    for row in read_shapes(ROOT / "examples" / "every_operator.csv"):
        try:
            spaces = Space(row.workload, lookup(arch)).families if row.workload else ()
        except UnsupportedError:
            continue
        for family in (space.family for space in spaces):
            for program in family.starters(row.workload, lookup(arch))[:2]:
                class_key, text = row.workload.class_key(), program.to_json()
                assert program_of(family.name, family.abi, class_key, text, arch) == program
                seen.add((family.name, row.workload.operator))
    every = {name for name in FAMILIES if not name.endswith("tcgen05")}
    assert arch != "sm_90" or {name for name, _ in seen} | {"contraction_sliced"} == every
