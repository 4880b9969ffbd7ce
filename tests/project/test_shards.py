"""The array job and the workflow of docs/fleet.md: they run, and merge to the rows of one run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gensor_database.record import TABLES
from gensor_database.store import Store

from .structure import ROOT

pytest.importorskip("gensor_tuner.cli.app")
FOLDER = ROOT / "docs" / "fleet"
ARRAY = (FOLDER / "tune.sbatch").read_text(encoding="utf-8")
WORKFLOW = yaml.safe_load((FOLDER / "tune-matrix.yml").read_text(encoding="utf-8"))
SHAPES = "op,m,n,k,dtype,shape\nmatmul,16,64,64,fp64,\nsoftmax,,,,fp32,32x64\n"
SHARES = 2


def bash(script: str, folder: Path, **environment: str) -> None:
    """Run a script with the installed commands first on the path, and searches as short as they can be."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    short, command = tools / "gensor-tune", f'exec {sys.executable} -m gensor_tuner.cli.app "$@"'
    short.write_text(f'#!/bin/sh\ncase "$1" in --*) set -- "$@" --top 1;; esac\n{command}\n')
    short.chmod(0o755)
    env = {**os.environ, **environment, "PATH": os.pathsep.join((str(tools), os.environ["PATH"]))}
    done = subprocess.run(["bash", "-e", "-c", script, "script"], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def digests(path: Path) -> dict[str, list[str]]:
    with Store.open(path, readonly=True) as store:
        return {kind.TABLE: sorted(row.digest for row in store.rows(kind)) for kind in TABLES}


@pytest.fixture
def folder(tmp_path, needs_emulator):
    (tmp_path / "shapes.csv").write_text(SHAPES)
    return tmp_path


@pytest.fixture
def whole(folder):
    run = "gensor-tune --arch sm_87 --shapes shapes.csv --db whole.db --measure never"
    bash(run, folder, SOURCE_DATE_EPOCH="1700000000")
    found = digests(folder / "whole.db")
    assert len(found["record"]) == 2
    return found


def test_the_array_merges_to_the_rows_of_one_run(folder, whole):
    (tasks,) = re.findall(r"^#SBATCH --array=1-(\d+)$", ARRAY, re.MULTILINE)
    assert re.findall(r"^shares=(\d+)\b", ARRAY, re.MULTILINE) == [tasks]
    script = re.sub(r"^shares=\d+", f"shares={SHARES}", ARRAY, flags=re.MULTILINE).replace("sm_87 sm_90", "sm_87")
    (folder / "tune.sbatch").write_text(script)
    for task in range(1, SHARES + 1):
        bash("bash tune.sbatch", folder, SLURM_ARRAY_TASK_ID=str(task), SLURM_CPUS_PER_TASK="1")
    bash("bash tune.sbatch merge", folder)
    assert digests(folder / "kernels.db") == whole
    (folder / "shard-2.db").unlink()
    with pytest.raises(AssertionError, match=r"shard-2\.db does not exist"):
        bash("bash tune.sbatch merge", folder)


@pytest.mark.nightly
def test_the_workflow_merges_to_the_rows_of_one_run(folder, whole):
    """Its own commands, without those that install; a share that is missing is found."""
    shard, merge = (WORKFLOW["jobs"][name] for name in ("shard", "merge"))
    shares = shard["strategy"]["matrix"]["shard"]
    assert shares == [*range(1, len(shares) + 1)] and merge["needs"] == "shard"
    environment = {**WORKFLOW["env"], "ARCHS": "sm_87"}
    tune, *more = [step for step in shard["steps"] if "run" in step and "pip" not in step["run"]]
    assert not more and tune["env"] == {"SHARD": "${{ matrix.shard }}", "SHARDS": "${{ strategy.job-total }}"}
    for number in range(1, SHARES + 1):
        bash(tune["run"], folder, **environment, SHARD=str(number), SHARDS=str(SHARES))
    commands = [step["run"] for step in merge["steps"] if "run" in step and "pip" not in step["run"]]
    bash("\n".join(commands), folder, **environment)
    assert digests(folder / "kernels.db") == whole
    for name in ("kernels.db", "shard-2.db"):
        (folder / name).unlink()
    with pytest.raises(AssertionError, match="1 skipped"):
        bash("\n".join(commands), folder, **environment)
