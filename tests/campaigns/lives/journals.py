"""The two journal modes, by the file system a database is taken to be on."""

JOURNALS = ("wal", "delete")


def set_journal(journal: str) -> None:
    """Every database this process opens from now on is in this mode."""
    from gensor_database import opening

    opening.is_remote = lambda path: journal == "delete"
