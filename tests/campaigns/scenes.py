"""What the lives of the campaigns do; each function is a whole program."""

from __future__ import annotations

import sys
from contextlib import suppress


def cli(journal: str, *arguments: str) -> None:
    """gensor-tune with these arguments, its database in WAL mode or with a rollback journal."""
    from gensor_tuner.cli import main

    set_journal(journal)
    sys.argv = ["gensor-tune", *arguments]
    main()


def cli_to_its_end(*arguments: str) -> None:
    """The same where the process goes on."""
    with suppress(SystemExit):
        cli("wal", *arguments)


def set_journal(journal: str) -> None:
    from gensor_database import connection

    connection.is_remote = lambda path: journal == "delete"
