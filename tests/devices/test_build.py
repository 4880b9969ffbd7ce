"""Libraries of the emulator: loaded from folders that no other user can replace, and built again if damaged."""

import errno
import functools
import importlib
import os
import platform
import shlex
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import gensor_kernels
from gensor_database import trust
from gensor_kernels import config
from gensor_kernels.build import tools
from gensor_kernels.devices.emulator import run
from gensor_kernels.devices.emulator.build import Kept, _emulator_digest, build, has_fma, library_digest, usable_folder
from gensor_kernels.devices.emulator.run import DamagedError
from gensor_kernels.errors import BuildError, ConfigError, MachineError, ToolMissingError
from tests.doubles.emulated_kernels import SMALL, execute, source
from tests.doubles.store_rows import umask

device, run_module, build_module = (
    importlib.import_module(f"gensor_kernels.devices.emulator.{name}") for name in ("device", "run", "build")
)
pytestmark = pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
NAME = "0.so"


def text(number):
    return source(SMALL + f'KERNEL(test, Params, 32, 0) {{ cover("number {number}"); }}')


@pytest.fixture
def kept(tmp_path):
    """A folder with one file in it, and the descriptor of that folder."""
    (tmp_path / "kept").mkdir(mode=0o700)
    with Kept(tmp_path / "kept") as folder:
        add(folder, b"code")
        yield folder


def add(folder, content, name=NAME):
    unfinished = folder.begin()
    (folder.path / unfinished).write_bytes(content)
    folder.keep(unfinished, name)


def another_user(path):
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(path, 4321, -1)


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "one bit": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "writable by its group": lambda path: path.chmod(0o660),
    "of another user": another_user,
    "a link": lambda path: path.symlink_to(path.rename(path.with_suffix(".other"))),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "not there": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_only_whole_files_of_ones_own_are_there(kept, damage):
    assert kept.has(NAME)
    DAMAGE[damage](kept.path / NAME)
    assert not kept.has(NAME)
    add(kept, b"code again")
    assert kept.has(NAME) and (kept.path / NAME).read_bytes()[:-32] == b"code again"


def whole_but_no_library(path):
    """Replace a library by a file that the system does not load."""
    with Kept(path.parent) as folder:
        add(folder, b"not ELF", path.name)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        *((DAMAGE[name], "built again") for name in ("empty", "truncated", "a link")),
        (whole_but_no_library, r"was not loaded .* and deleted: it has to be built again"),
    ],
)
def test_a_damaged_library_is_never_loaded_and_is_built_again(fresh, damage, words):
    kernel = text(fresh.parent.name)  # another one in each case: libraries that are loaded stay
    path = build(kernel)
    damage(path)
    with pytest.raises(DamagedError, match=words):
        run(path, [], b"", [])
    assert build(kernel) == path and not path.is_symlink()
    assert run(path, [], b"", []) == {}


def test_a_damaged_object_is_built_again_and_never_linked(fresh, monkeypatch):
    made, commands, begin = fresh / "emulator" / f"{_emulator_digest()}.o", [], tools.run
    whole = made.read_bytes()
    os.truncate(made, 100)

    def compiled(command, *more):
        commands.append(command)
        if "-c" in command:  # as the compiler makes it, in less time
            Path(command[-1]).write_bytes(whole[:-32])
            return subprocess.CompletedProcess(command, 0, "", "")
        return begin(command, *more)

    monkeypatch.setattr(tools, "run", compiled)
    build(text("an object"))
    assert made.read_bytes() == whole and ["-c" in command for command in commands] == [True, False]


def test_calls_go_on_where_a_library_was_damaged(fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "new.db"))  # no earlier call has loaded a kernel
    built = []

    def damaged(source):
        built.append(build(source))
        if len(built) == 1:  # between its making and its first use
            os.truncate(built[0], 100)
        return built[-1]

    monkeypatch.setattr(device, "build", damaged)
    monkeypatch.setattr(run_module, "_libraries", {})
    a, b = np.eye(8, 16, dtype=np.float32), np.ones((16, 8), np.float32)
    with gensor_kernels.emulated("sm_87"):
        np.testing.assert_array_equal(gensor_kernels.matmul(a, b), a @ b)
    assert built == [built[0]] * 2


def test_what_is_loaded_is_in_the_folder_that_was_looked_at(kept, tmp_path):
    """Another folder in its place changes nothing."""
    kept.path.rename(tmp_path / "away")
    kept.path.mkdir()
    (kept.path / NAME).write_bytes(b"something else")
    assert kept.has(NAME) and Path(kept.where(NAME)).read_bytes()[:-32] == b"code"


FOLDERS = {
    "writable by its group": (lambda path: path.chmod(0o770), "its group"),
    "writable by all": (lambda path: path.chmod(0o777), "everybody"),
    "of another user": (another_user, "another user"),
}
CHANGES = [(what, *each) for what in ("cache", "cache/emulator") for each in FOLDERS.values()]
CHANGES.append(("cache/emulator", DAMAGE["a link"], "Not a directory|symbolic link"))


@pytest.mark.parametrize(("what", "change", "words"), CHANGES)
def test_no_library_is_taken_from_a_folder_that_others_can_change(fresh, monkeypatch, what, change, words):
    monkeypatch.setattr(trust, "_is_personal", lambda group: False)
    path = build(text("one"))
    monkeypatch.setattr(run_module, "_libraries", {})
    change(fresh.parent / what)
    for use in (lambda: run(path, [], b"", []), lambda: build(text("another"))):
        with pytest.raises(ConfigError, match=words):
            use()
    assert not run_module._libraries


def test_files_are_on_the_disk_before_they_have_their_names(kept, monkeypatch):
    done = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, _name=name, _real=real, **b: (done.append(_name), _real(*a, **b)))
    with umask(0):
        add(kept, b"more", "1.so")
    assert done == ["fsync", "replace", "fsync"]
    assert (kept.path / "1.so").stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in kept.path.iterdir()) == [NAME, "1.so"]


@pytest.mark.parametrize("name", ["-x", "-o", "@file", "a b"])
def test_the_name_of_the_cache_folder_is_no_option_of_the_compiler(fresh, monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    fresh.rename(tmp_path / name)
    monkeypatch.setenv("GENSOR_CACHE_DIR", name)
    assert config.cache_dir() == tmp_path / name
    assert build(text(name)).parent == tmp_path / name / "emulator"


def says(text):
    return f"echo {shlex.quote(text)} >&2; exit 1"


#: what g++ does, and words of the error
FAILURES = {
    "no space": (says("<stdin>:1:1: fatal error: error writing to /tmp/x.s: No space left on device"), "No space left"),
    "no space for the linker": (says("ld: final link failed: No space left on device"), "No space left"),
    "no headers": (says("emulator.h:9:10: fatal error: cstdint: No such file or directory"), "cstdint"),
    "no front end": (says("g++: fatal error: cannot execute 'cc1plus': execvp"), "cc1plus"),
    "no memory": (says("cc1plus: out of memory allocating 65536 bytes"), "out of memory allocating"),
    "killed": ("kill -9 $$", "killed by signal 9"),
    "its child was killed": (says("g++: fatal error: Killed signal terminated program cc1plus"), "Killed"),
    "silent": ("exit 3", "exit code 3"),
}


@pytest.fixture
def broken(monkeypatch, tmp_path):
    """A function that puts another g++ first in PATH, which counts its compilations; returns their number."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(build_module, "compiler", functools.cache(build_module.compiler.__wrapped__))
    monkeypatch.setattr(build_module, "_emulator_digest", functools.cache(_emulator_digest.__wrapped__))

    def put(script, version="echo 'g++ 99'"):
        text = f"#!/bin/sh\n[ $1 = --version ] && {{ {version}; exit; }}\necho >>{tmp_path}/calls\n{script}\n"
        (tmp_path / "bin" / "g++").write_text(text)
        (tmp_path / "bin" / "g++").chmod(0o755)
        return lambda: (tmp_path / "calls").read_text().count("\n")

    return put


@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_of_the_machine_is_no_failure_of_a_kernel(what, broken, monkeypatch, tmp_path):
    script, words = FAILURES[what]
    broken(script)
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(MachineError, match=words) as caught:
        build(text(what))
    assert "\n" not in str(caught.value) and not list(usable_folder().iterdir())


def test_a_call_is_answered_by_the_first_failure_of_the_machine(broken, monkeypatch, tmp_path):
    """Every kernel would fail in the same way: each took a compilation of the whole emulator."""
    calls = broken("exit 3")
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "new.db"))  # nothing is loaded yet
    with gensor_kernels.emulated("sm_87"), pytest.raises(MachineError, match="exit code 3"):
        gensor_kernels.matmul(np.ones((8, 64), np.float32), np.ones((64, 8), np.float32))
    assert calls() == 1


def test_an_error_at_a_line_of_a_kernel_is_the_kernels(fresh):
    words = r"g\+\+ refused the kernel: .*error: static assertion failed: a reason"
    with pytest.raises(BuildError, match=words) as caught:
        build(text("wrong") + 'static_assert(sizeof(int) == 1, "a reason");')
    assert not isinstance(caught.value, MachineError)


@pytest.mark.parametrize("version", ["exit 1", "true", "kill -9 $$"])
def test_a_compiler_that_does_not_answer_is_no_compiler(broken, version):
    broken("", version)
    words = r"the C\+\+ compiler .*/bin/g\+\+ does not work .*: install g\+\+ again"
    with pytest.raises(ToolMissingError, match=words):
        build_module.compiler()


def test_a_folder_without_space_is_named_with_the_variable(fresh, monkeypatch):
    def full(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Kept, "begin", full)
    with pytest.raises(MachineError, match=r"cache folder .* \(No space left on device\): .* set GENSOR_CACHE_DIR"):
        build(text("no space"))


def test_a_folder_that_nothing_can_be_loaded_from_is_refused_before_anything_is_built(broken, monkeypatch, tmp_path):
    broken("exit 3")
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC))
    with pytest.raises(ConfigError, match="mounted noexec: set GENSOR_CACHE_DIR to a folder of another file system"):
        build(text("noexec"))
    assert not (tmp_path / "calls").exists()


#: (1 + e)^2 - 1 - 2 e = e^2, which is lost where the product is rounded
E = 2.0**-12
STATEMENTS = """KERNEL(test, Params, 32, 0) {
    const gptr<float> x = gptr<float>(params.p[0]), y = gptr<float>(params.p[1]);
    const float a = load_global<4>(x, true).get<float>(0), c = load_global<4>(x + 1, true).get<float>(0);
    const float product = a * a;
    Vec<16> sums = Vec<16>::zero();
    sums.set(0, a * a + c), sums.set(1, product - -c), sums.set(2, c - -a * a), sums.set(3, fma_(a, a, c));
    store_global<16>(y, sums, thread_index() == 0);
}"""


def sums():
    found = np.zeros(4, np.float32)
    execute(STATEMENTS, [np.array([1 + E, -1 - 2 * E], np.float32), found])
    return found.tolist()


def test_cpus_without_fused_multiply_adds_share_a_folder_with_others(fresh, monkeypatch):
    """Sums are rounded as NVRTC compiles them where the CPU can."""
    fused, digest = build(text("shared")), library_digest(text("shared"))
    if has_fma():
        assert sums() == [E * E] * 4
    monkeypatch.setattr(build_module, "has_fma", lambda: False)
    monkeypatch.setattr(build_module, "_emulator_digest", functools.cache(_emulator_digest.__wrapped__))
    folder = usable_folder()  # the emulator itself is compiled in the same way
    made, unfused = (folder / f"{each()}.o" for each in (_emulator_digest, build_module._emulator_digest))
    if made != unfused:
        shutil.copy(made, unfused)
    assert sums() == [0, 0, 0, E * E]  # fma_ is correct everywhere
    if made != unfused:
        other = build(text("shared"))
        assert other.parent == fused.parent and other.name != fused.name and fused.is_file()
        assert library_digest(text("shared")) != digest  # a key of verdicts, too


CPUS = {
    "x86_64": ("x86_64", "flags\t\t: fpu avx fma avx2\nmodel\t: 1\nflags\t\t: fpu avx fma avx2\n", True),
    "without": ("x86_64", "flags\t\t: fpu avx fma4\nvmx flags\t: fma\n", False),
    "one without": ("x86_64", "flags\t\t: fpu fma\nflags\t\t: fpu\n", False),
    "unknown": ("x86_64", "", False),
    "aarch64": ("aarch64", "", True),
    "another": ("riscv64", "flags\t\t: fma\n", False),
}


def test_the_instruction_is_looked_up(monkeypatch):
    for cpu, (machine, information, has) in CPUS.items():
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        monkeypatch.setattr(Path, "read_text", lambda path, information=information: information)
        assert has_fma.__wrapped__() is has, cpu
