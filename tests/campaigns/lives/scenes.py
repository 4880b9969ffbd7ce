"""Programs of the campaigns' lives, one per function."""

import json
import logging
import os
import sys
import warnings
from contextlib import suppress

import numpy as np

import gensor_kernels
from gensor_database import Store
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection.load import library
from gensor_kernels.dispatch.tuning import writeback
from tests.doubles.device import FakeDevice, Race, emulate
from tests.doubles.kernels import ARCH
from tests.doubles.stored import SIMT, class_workload, programs, rows

from .checks import set_journal

CALLS = 4


def cli(journal: str, *arguments: str) -> None:
    """gensor-tune with these arguments, its database in WAL mode or with a rollback journal."""
    from gensor_tuner.cli.app import main

    set_journal(journal)
    sys.argv = ["gensor-tune", *arguments]
    main()


def cli_to_its_end(*arguments: str) -> None:
    with suppress(SystemExit):
        cli("wal", *arguments)


def stocked(journal: str, path: str) -> None:
    """A database with a kernel for `program`'s calls, whose binary makes it fit to race."""
    set_journal(journal)
    wanted = class_workload("float32", "float32", "ieee", "knn", True)
    with Store.open(path) as store:
        for program in programs(wanted, ARCH, SIMT, False, 0):
            store.add(*rows(program, wanted, cubin=b"\x7fELF"))


def program(journal: str, path: str) -> None:
    """A program that calls matmul: on a device, where its second call races and the times are stored, then emulated.

    The device is the emulator in place of a GPU, on which the kernels win every race. Prints the number of correct
    results and all warnings, those of the log included.
    """
    set_journal(journal)
    os.environ["GENSOR_DB"] = path
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("gensor_kernels").addHandler(handler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        device = current.inside.set(Runtime(FakeDevice(ARCH, emulate, Race(1.0, 2.0)), library(ARCH)))
        right = sum(is_right() for _ in range(CALLS))
        writeback._flush()
        current.inside.reset(device)
        with gensor_kernels.emulated("sm_87"):
            right += is_right()
    print(json.dumps({"right": right, "warnings": sorted({*said, *(str(each.message) for each in caught)})}))


def is_right() -> bool:
    a, b = (np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % size for size in (7, 5))
    return np.array_equal(gensor_kernels.matmul(a, b), a @ b)
