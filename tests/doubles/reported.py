"""Databases for the report's tests: the shipped one, with timings that never happened, and one that means harm."""

import shutil
from pathlib import Path

import numpy as np

from gensor_database import PRETUNED, Record, Store, Timing, canonical

from .store_rows import kernel_rows, rows

SHIPPED = PRETUNED / "sm_87.db"
#: Attempts to leave a text, an attribute, a title, a script and a style.
HOSTILE = (
    "<script>window.harmed=1</script>",
    '"><img src=x onerror="window.harmed=1">',
    "'--></style></script><svg onload=window.harmed=1>",
    "</title><iframe src=javascript:parent.harmed=1>",
    "javascript:window.harmed=1",
    "&lt;b&gt; \x00\x1b[31m\u202e",
)


def timed(path: Path, every: int = 1) -> Path:
    """The shipped database with a time of ours and of the vendor's for each record, noise around predictions."""
    shutil.copy(SHIPPED, path)
    path.chmod(0o600)
    rng = np.random.default_rng(0)
    with Store.open(path) as store:
        found = sorted(store.rows(Record), key=lambda record: record.key)[::every]
        made = []
        for record in found:
            ours = record.predicted_us * float(np.exp(rng.normal(0.1, 0.25)))
            place = (record.key, record.arch, record.part)
            made.append(Timing(*place, record.kernel_digest, None, ours, created=record.created))
            made.append(Timing(*place, None, "cupy.matmul", ours * float(np.exp(rng.normal(0.1, 0.3))), created=1))
        store.add(*made)
    return path


def hostile(path: Path) -> Path:
    """Every text of a record that a writer of a database chooses, chosen badly."""
    with Store.open(path) as store:
        store.add(*rows(1))
        kernel = kernel_rows(1)[1].digest
        for number, text in enumerate(HOSTILE):
            part = "orin-nano-8gb" if number % 2 else text
            key = canonical({"operator": text, "sizes": {text: 1}})
            walk = canonical({"family": text, "graph": text, "legs": [], "start": []})
            store.add(
                Record(key, "sm_87", part, 2, kernel, 3.0, 2.0, "failed", text, walk),
                Timing(key, "sm_87", part, kernel, None, 3.5),
                Timing(key, "sm_87", part, None, text, 4.5),
            )
    return path
