"""What the lives of the campaigns do; each function is a whole program."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from contextlib import suppress

import numpy as np

import gensor_kernels
from gensor_database import Store
from gensor_kernels.build.source import flatten
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection.load import library
from gensor_kernels.dispatch.tuning import writeback
from gensor_kernels.machine.arch import lookup
from gensor_kernels.programs.registry import FAMILIES
from tests.doubles.device_double import Double
from tests.doubles.emulated_store import SIMT, programs, rows, workload

from .journals import set_journal

CALLS = 4


def cli(journal: str, *arguments: str) -> None:
    """gensor-tune with these arguments, its database in WAL mode or with a rollback journal."""
    from gensor_tuner.cli.app import main

    set_journal(journal)
    sys.argv = ["gensor-tune", *arguments]
    main()


def cli_to_its_end(*arguments: str) -> None:
    """The same where the process goes on."""
    with suppress(SystemExit):
        cli("wal", *arguments)


def stocked(journal: str, path: str) -> None:
    """A database with a kernel for `program`'s calls, whose binary makes it fit to race."""
    set_journal(journal)
    arch, wanted = lookup("sm_87"), workload("float32", "float32", "ieee", "knn", True)
    text = flatten(FAMILIES[SIMT].source)
    with Store.open(path) as store:
        for program in programs(wanted, arch, SIMT, False, 0):
            store.add(*rows(program, wanted, arch, text, cubin=b"\x7fELF"))


class Raced(Double):
    """The emulator taken for a GPU on which the kernels win every race; NumPy is its library."""

    def product(self, a, b, precision=None, out=None):
        return np.matmul(a, b, out=out)

    def sampled(self, calls):
        for call in calls:
            call()
        return [[float(index == 0) + 1.0] * 3 for index, _ in enumerate(calls)]


def program(journal: str, path: str) -> None:
    """A program that calls matmul: on a device, where its second call races and the times are stored, then emulated.

    Prints how many results were right and which warnings there were, those of the log included.
    """
    set_journal(journal)
    os.environ["GENSOR_DB"] = path
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("gensor_kernels").addHandler(handler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        arch = lookup("sm_87")
        device = current.inside.set(Runtime(Raced(arch), library(arch)))
        right = sum(is_right() for _ in range(CALLS))
        writeback._flush()
        current.inside.reset(device)
        with gensor_kernels.emulated("sm_87"):
            right += is_right()
    print(json.dumps({"right": right, "warnings": sorted({*said, *(str(each.message) for each in caught)})}))


def is_right() -> bool:
    a, b = (np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % size for size in (7, 5))
    return np.array_equal(gensor_kernels.matmul(a, b), a @ b)
