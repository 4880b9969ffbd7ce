"""Three databases as one: precedence, trust, and every way in which one of them can be unusable."""

import ctypes
import dataclasses
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from unittest.mock import Mock

import pytest

from gensor_database import Catalog, Store, StoreWarning, Verification, export, layers, open_layers
from gensor_database.errors import UnreadableStoreError
from gensor_kernels.dispatch.selection import untrusted
from tests.doubles.store_rows import ARCH, PART, altered, class_key, kernel_rows, key, rows, stock, umask


@pytest.fixture
def paths(tmp_path, monkeypatch):
    """User, site and packaged databases; the packaged one is made like a shipped one."""
    (tmp_path / "pretuned").mkdir()
    monkeypatch.setattr(layers, "PRETUNED", tmp_path / "pretuned")
    return tmp_path / "user.db", tmp_path / "site.db", tmp_path / "pretuned" / f"{ARCH}.db"


def ship(path, *numbers):
    draft = path.with_suffix(".draft")
    stock(draft, *numbers)
    with Store.open(draft) as store:
        export(store, path, ARCH)
    draft.unlink()


def test_user_before_site_before_packaged(paths):
    user, site, packaged = paths
    ship(packaged, 1, 2, 3)
    stock(site, 2, 3, created=1)
    stock(user, 3, created=2)  # older than the packaged one, and yet it counts
    with open_layers(ARCH, user, site) as opened:
        catalog = opened.load(ARCH)
        for look_up in (lambda n: opened.find(key(n), ARCH, PART), lambda n: catalog.find(key(n), PART)):
            assert [look_up(n).record.created for n in (1, 2, 3)] == [1_700_000_000, 1, 2]
            assert look_up(4) is None
        kernels = one, two, three = [kernel_rows(n)[1] for n in (1, 2, 3)]
        keys = sorted(map(key, (1, 2, 3)))
        assert [stored.kernel for stored in catalog.portfolio(class_key(), PART)] == [three, two, one]
        assert {stored.kernel for stored in catalog.kernels_for_class(class_key())} == {*kernels}
        assert [stored.kernel.digest for stored in catalog.kernels()] == sorted(
            each.digest for each in (one, two, three)
        )
        assert len(catalog.timings(key(3), PART)) == 6  # all layers' timings are kept
        assert catalog.find(key(3), PART).binary() == kernel_rows(3)[0]
        assert [entry.record.key for entry in catalog.entries()] == keys == catalog.timed_keys(PART)
        assert catalog.timed_keys("x") == []


def test_a_record_without_a_usable_kernel_hides_none_that_has_one(paths):
    user, _, packaged = paths
    ship(packaged, 1)
    stock(user, 2)
    for number, refuted in ((3, False), (4, True)):  # the user's newer records: never executed, and found wrong
        _, kernel, verification = kernel_rows(number)
        record = dataclasses.replace(rows(number)[4], key=key(1 if refuted else 2), created=1_800_000_000)
        with Store.open(user) as store:
            store.add(*rows(number)[:3], record, *([verification] if refuted else []))
            if refuted:
                store.add(Verification(kernel.digest, "device", "wrong"))
    with open_layers(ARCH, user) as opened:
        catalog = opened.load(ARCH)
        for number in (1, 2):
            entry = catalog.find(key(number), PART)
            assert entry.usable and entry.kernel == kernel_rows(number)[1]
    with Store.open(user, readonly=True) as store:
        assert Catalog([store], ARCH).find(key(1), PART).verified == "rejected"  # there is no other


def test_only_the_users_database_is_written_and_made_when_needed(paths):
    user, site, packaged = paths
    ship(packaged, 1)
    stock(site, 2)
    before = site.read_bytes(), packaged.read_bytes()
    with open_layers(ARCH, user, site) as opened:
        assert not user.exists() and opened.user is None
        assert opened.add(Verification(kernel_rows(1)[1].digest, "device", "ok"))
        assert user.exists()
        assert opened.load(ARCH).find(key(1), PART).verified == "device"
        assert opened.add(Verification(kernel_rows(2)[1].digest, "device", "wrong"))
        assert not opened.load(ARCH).find(key(2), PART).usable
    assert (site.read_bytes(), packaged.read_bytes()) == before


def test_unusable_layers_are_left_out_with_a_warning_each(paths, monkeypatch):
    user, site, packaged = paths
    ship(packaged, 1)
    stock(user, 2)
    newer = altered(user, "PRAGMA user_version=99").read_bytes()
    site.write_bytes(b"garbage" * 1000)
    with pytest.warns(StoreWarning) as caught:
        opened = open_layers(ARCH, user, site)
    assert sorted("newer" in str(item.message) for item in caught) == [False, True]
    assert all("left out" in str(item.message) for item in caught)
    assert opened.stores == (opened.packaged,) and opened.load(ARCH).find(key(1), PART) is not None
    with pytest.warns(StoreWarning, match="nothing was stored"):
        assert opened.add(*rows(3)) is False
    assert user.read_bytes() == newer
    failing = stock(user.with_name("failing.db"), 1)
    monkeypatch.setattr(Store, "open", Mock(side_effect=OSError(5, "Input/output error")))
    with pytest.warns(StoreWarning, match="Input/output error") as caught:
        assert {open_layers(ARCH, failing).user for _ in range(2)} == {None}
    assert len(caught) == 2  # of the user's and the packaged database


def test_a_missing_site_database_is_a_warning_and_missing_others_are_not(paths):
    with pytest.warns(StoreWarning, match=r"site\.db does not exist"):
        opened = open_layers("sm_75", paths[0], paths[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert opened.stores == () and opened.load("sm_75").entries() == []
        assert open_layers("sm_75").add(*rows(1)) is False


@pytest.mark.filterwarnings("ignore::gensor_database.StoreWarning")
def test_cubins_come_only_from_files_that_others_cannot_write(paths):
    """A site database that others can write to is data; the user's is not even opened then."""
    path = paths[0].parent / "home" / "kernels.db"
    stock(path, 1)
    path.chmod(0o664)
    with pytest.warns(StoreWarning, match=r"run chmod go-w .*kernels\.db"), open_layers(ARCH, None, path) as opened:
        catalog = opened.load(ARCH, None, untrusted.well_formed)
        assert catalog.find(key(1), PART) is None  # its class is none that this version writes
    others = [(0o664, 0o755), (0o644, 0o775), (0o646, 0o755), (0o644, 0o757), (0o644, 0o1777)]
    for file, folder in [(0o644, 0o755), *others]:
        trusted = (file, folder) not in others
        path.chmod(file)
        path.parent.chmod(folder)
        with open_layers(ARCH, None, path) as opened:
            assert opened.site.trusted is trusted
            entry = opened.load(ARCH).find(key(1), PART)
            assert (entry.binary() is not None) is trusted and entry.binary(trusted=False) is not None
        with open_layers(ARCH, path) as opened:
            assert (opened.user is not None) is trusted and (opened.user is None or opened.user.trusted)
            assert (opened.user_path is not None) is trusted


def test_a_new_database_is_not_group_writable_under_a_lax_umask(tmp_path):
    with umask(0o002), Store.open(tmp_path / "new" / "kernels.db") as store:
        assert store.trusted and store.path.stat().st_mode & 0o777 == 0o644
        assert store.path.parent.stat().st_mode & 0o777 == 0o700


def abandon_log(path):
    """Leaves a database as a killed writer does: the last rows only in the write-ahead log."""
    child = os.fork()
    if child == 0:
        store = Store.open(path)
        store.add(*rows(7))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.stat(f"{path}-wal").st_size > 0


def obey_modes():
    """From now on modes hold for root too. As another user it might not be able to enter the tests' own folder."""
    if sys.platform != "linux":
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        return
    libc, writing = ctypes.CDLL(None, use_errno=True), 1  # CAP_DAC_OVERRIDE
    libc.prctl(24, writing, 0, 0, 0)  # PR_CAPBSET_DROP: nor do programs that it starts have it
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    failed = libc.capget(header, sets)
    for each in range(3):  # effective, permitted, inheritable
        sets[each] &= ~(1 << writing)
    if failed or libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "root's right to write anywhere cannot be given up")


def unprivileged(check):
    """Runs `check()` in a child that cannot write where modes forbid it, also when the tests run as root."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                obey_modes()
            check()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("left_over", [(), ("-wal", "-shm"), ("-wal",)])
def test_a_wal_database_in_a_readonly_folder(left_over):
    """Readable, unless rows are in a log that cannot be indexed: then left out, rather than answer without them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.db")
        stock(path, 1)
        if left_over:
            abandon_log(path)
        if "-shm" not in left_over:
            Path(f"{path}-shm").unlink(missing_ok=True)
        for file in Path(folder).iterdir():
            file.chmod(0o444)
        os.chmod(folder, 0o555)

        def check():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                opened = open_layers(ARCH, path)
            unreadable = left_over == ("-wal",)
            assert bool(caught) is unreadable is (opened.user is None)
            words = "-wal; copy both files to a folder that can be written" if unreadable else "folder is read-only"
            if len(left_over) < 2:  # an index that is there can be read
                with pytest.raises(UnreadableStoreError, match=words):
                    Store.open(path)
            for number in (1, 7) if left_over else (1,):
                assert unreadable or opened.find(key(number), ARCH, PART) is not None
            with pytest.warns(StoreWarning, match="nothing was stored"):
                assert opened.add(*rows(2)) is False

        unprivileged(check)
        os.chmod(folder, 0o755)


def test_importing_needs_the_standard_library_alone_and_public_names_are_imported_at_their_first_use():
    """Each is what its module defines, also where a module has the same name; before that SQLite is not imported."""
    code = """
import sys, types
before = set(sys.modules)
import gensor_database
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(new - set(sys.stdlib_module_names), "sqlite3" in sys.modules, end=" ")
found = {name: getattr(gensor_database, name) for name in gensor_database.__all__}
print([name for name, each in found.items() if isinstance(each, types.ModuleType)], hasattr(gensor_database, "gone"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{'gensor_database'} False [] False\n"
