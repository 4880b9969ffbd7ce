"""Cubins from NVRTC: resources read, bytes reproducible, errors as values."""

import dataclasses
import hashlib
import os
import subprocess
import sys
import threading

import pytest

from gensor_kernels.build import nvrtc
from gensor_kernels.errors import MachineError, ToolMissingError
from tests.doubles.emulated_kernels import toy

KERNEL = toy("two_entries")
SOURCES = [f"#define REGISTERS {n}\n{KERNEL}" for n in (4, 8, 12, 16)]


def run(code, **options):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, **options).stdout


def test_resources_are_read_per_entry():
    binary = nvrtc.compile_cubin("#define REGISTERS 300\n" + KERNEL, "sm_87")
    first, second = binary.entries["first"], binary.entries["second"]
    assert first.registers == 255 and first.spill_stores > 0 and first.spill_loads > 0 and first.stack_bytes > 0
    assert second.spill_bytes == 0 and second.shared_bytes == 256 and 0 < second.registers <= 32
    assert binary.registers == 255 and binary.shared_bytes == 256
    assert binary.spill_bytes == first.spill_bytes and binary.stack_bytes == first.stack_bytes


def test_bytes_do_not_depend_on_process_folder_home_hash_seed_or_jobs(tmp_path):
    here = [
        hashlib.sha256(binary.cubin).hexdigest()
        for jobs in (1, 2)
        for binary in nvrtc.compile_many([(source, "sm_87") for source in SOURCES], jobs)
    ]
    code = (
        "import hashlib, sys; from gensor_kernels.build import nvrtc\n"
        "sources = eval(sys.stdin.read())\n"
        "binaries = nvrtc.compile_many([(s, 'sm_87') for s in reversed(sources)])\n"
        "print(*[hashlib.sha256(b.cubin).hexdigest() for b in reversed(binaries)], nvrtc.compile_count())\n"
    )
    for seed in ("1", "2"):
        folder = tmp_path / seed
        (folder / "kernel.cu").mkdir(parents=True)
        environment = {**os.environ, "HOME": str(folder), "PYTHONHASHSEED": seed}
        *there, count = run(code, input=repr(SOURCES), cwd=folder, env=environment).split()
        assert there == here[:4] == here[4:] and int(count) == len(SOURCES)
    assert len(set(here)) == len(SOURCES)


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ('#line 7 "x.cu"\nstatic_assert(sizeof(int) == 8, "a block holds 1024 threads");\n', "sm_87", "x.cu(7)"),
        ('static_assert(sizeof(int) == 8, "a block holds 1024 threads");\n', "sm_87", "a block holds 1024 threads"),
        ('__global__ void f() { asm volatile("nonsense;"); }', "sm_87", "nonsense"),
        *((KERNEL, target, "") for target in ("sm_42", "compute_87", "sm_87; rm", "", "sm_87\n")),
    ],
)
def test_errors_are_values_that_name_the_place(source, target, words):
    binary = nvrtc.compile_cubin(source, target)
    assert binary.error and words in binary.error and binary.cubin == b"" and binary.entries == {}


def test_no_file_of_the_working_folder_is_read(tmp_path, monkeypatch):
    (tmp_path / "secret.h").write_text("int secret;\n")
    monkeypatch.chdir(tmp_path)
    refused = nvrtc.compile_cubin('#include "secret.h"\n' + KERNEL, "sm_87")
    assert "secret.h" in refused.error and refused == nvrtc.compile_cubin('#include "secret.h"\n' + KERNEL, "sm_87")


def test_one_bad_source_does_not_stop_the_others_and_equal_ones_compile_once():
    before, seen = nvrtc.compile_count(), []
    requests = [(SOURCES[0], "sm_80"), ("int x = ;", "sm_80"), (SOURCES[0], "sm_80"), (SOURCES[1], "sm_80")]
    binaries = nvrtc.compile_many(requests, 2, done=lambda index, binary: seen.append(index))
    assert [binary.error is None for binary in binaries] == [True, False, True, True]
    assert binaries[0] is binaries[2] and seen == [0, 1, 2, 3]
    assert nvrtc.compile_count() - before == 3


def test_compiling_leaves_the_interpreter_to_other_threads():
    """With the interpreter lock held, this thread could not run a single line during a compilation."""
    library, running, lines = nvrtc._nvrtc(), threading.Event(), 0

    class Watched:
        def __getattr__(self, name):
            return getattr(library, name)

        def nvrtcCompileProgram(self, *arguments):
            running.set()
            try:
                return library.nvrtcCompileProgram(*arguments)
            finally:
                running.clear()

    thread = threading.Thread(target=nvrtc.compile_text, args=(Watched(), SOURCES[0].encode(), "sm_87"))
    thread.start()
    running.wait(30)
    while running.is_set():
        lines += 1
    thread.join()
    assert lines > 1000


def test_toolchain_names_the_patch_level_and_added_flags(monkeypatch):
    nvrtc.toolchain.cache_clear()
    assert nvrtc.toolchain().startswith("nvrtc 12.9.")
    assert nvrtc.toolchain_note() is None
    nvrtc.toolchain.cache_clear()
    monkeypatch.setenv("NVRTC_APPEND_FLAGS", "--maxrregcount=32")
    assert nvrtc.toolchain().endswith(" NVRTC_APPEND_FLAGS=--maxrregcount=32")
    nvrtc.toolchain.cache_clear()


def test_the_patch_level_is_found_behind_links(monkeypatch, tmp_path):
    from cuda import pathfinder

    found = pathfinder.load_nvidia_dynamic_lib("nvrtc")
    (tmp_path / "linked").symlink_to(os.path.dirname(found.abs_path))
    link = tmp_path / "linked" / os.path.basename(found.abs_path)
    monkeypatch.setattr(
        pathfinder, "load_nvidia_dynamic_lib", lambda name: dataclasses.replace(found, abs_path=str(link))
    )
    monkeypatch.setattr(nvrtc, "toolchain", nvrtc.toolchain.__wrapped__)
    assert nvrtc.toolchain().startswith("nvrtc 12.9.")


def test_another_nvrtc_is_pointed_out(monkeypatch):
    monkeypatch.setattr(nvrtc, "toolchain", lambda: "nvrtc 13.1.80")
    assert "12.9" in nvrtc.toolchain_note() and "driver" in nvrtc.toolchain_note()


def test_a_missing_compiler_says_what_to_install():
    code = (
        "import sys; sys.modules['cuda.bindings'] = None\n"
        "from gensor_kernels.build import nvrtc; from gensor_kernels.errors import ToolMissingError\n"
        "for call in (lambda: nvrtc.compile_cubin('', 'sm_87'), lambda: nvrtc.compile_many([('', 'sm_87')])):\n"
        "    try: call()\n"
        "    except ToolMissingError as error: print(error)\n"
    )
    assert run(code).count("pip install 'gensor-kernels[tune]'") == 2


def test_a_library_that_cannot_load_says_what_to_install(monkeypatch):
    from cuda.bindings import nvrtc as bindings

    def broken():
        raise RuntimeError("Failed to dlopen libnvrtc.so.12")

    nvrtc._nvrtc.cache_clear()
    monkeypatch.setattr(bindings, "nvrtcVersion", broken)
    with pytest.raises(ToolMissingError, match=r"libnvrtc.*gensor-kernels\[tune\]"):
        nvrtc.compile_cubin(KERNEL, "sm_87")


@pytest.mark.parametrize("name", ["OUT_OF_MEMORY", "BUILTIN_OPERATION_FAILURE"])
def test_a_failure_of_the_machine_is_no_failure_of_the_source(name, monkeypatch):
    monkeypatch.setattr(nvrtc, "_compile", lambda *_: (f"NVRTC_ERROR_{name}", "a log\nof lines", b""))
    with pytest.raises(MachineError, match=rf"NVRTC failed on this machine \(NVRTC_ERROR_{name} a log\)"):
        nvrtc.compile_many([(SOURCES[0], "sm_87"), (SOURCES[1], "sm_87")])
