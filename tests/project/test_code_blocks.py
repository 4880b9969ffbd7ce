"""Every code block of README and docs/ runs, in the order of its page, in a folder like a clone.

Python runs on the emulator, with NumPy where a page has CuPy; `gensor-tune` runs in this process, with one finalist and
one job; other shell lines run in bash; a CSV with a title becomes a file. A block that cannot run has the reason in the
line above it, `<!-- not run: needs a GPU -->`, and its commands are parsed.
"""

import contextlib
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest

import gensor_kernels
from gensor_database import Kernel, Store
from gensor_kernels.machine.arch import lookup
from gensor_tuner.cli import app
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import read_shapes
from tests.graph.models import node, proto

from .test_packaging import ROOT

typer_main = pytest.importorskip("typer.main")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r'^(?:<!-- not run: (?P<why>[^\n]+) -->\n+)?```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?[^\n]*\n'
    r"(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
#: Shown, never run: drawings, output, and code that is part of a longer file.
SHOWN = {"text", "json", "toml", "yaml", "cuda", "ini"}
RUN = {"python", "sh", "csv", "sql"}
WHY = {
    *("installs packages", "is part of a file", "needs a GPU", "needs a GPU and a file", "needs a file"),
    *("needs another machine", "needs earlier runs", "needs PyTorch", "takes hours", "takes minutes"),
}
#: Options of gensor-tune that keep searches short where a page has none.
CHEAP = ("--top", "1", "--jobs", "1")
#: In a line for bash, what is more than a command with its arguments.
SHELL = re.compile(r"[|&;<>$`(){}*?]")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    title: str | None
    text: str
    why: str | None

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    name = str(page.relative_to(ROOT))
    return [
        Block(name, text.count("\n", 0, found.start("text")), *found.group("language", "title", "text", "why"))
        for found in FENCE.finditer(text)
    ]


BLOCKS = {str(page.relative_to(ROOT)): blocks(page) for page in PAGES}
EVERY = [block for found in BLOCKS.values() for block in found]
WITH_CODE = [page for page, found in BLOCKS.items() if any(block.language in RUN for block in found)]


def commands(text: str) -> list[str]:
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]


def words_of(line: str) -> tuple[dict[str, str], list[str]]:
    """The variables that a line sets, and its words."""
    words = shlex.split(line, comments=True)
    first = next((number for number, word in enumerate(words) if not re.match(r"[A-Z_]+=", word)), len(words))
    return dict(word.split("=", 1) for word in words[:first]), words[first:]


def test_every_block_says_what_it_is_and_most_run():
    assert not [str(block) for block in EVERY if block.language not in SHOWN | RUN]
    assert not [str(block) for block in EVERY if block.why and block.why not in WHY]
    for page in PAGES:  # no fence that the pattern above would pass over
        fences = re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) == 2 * len(BLOCKS[str(page.relative_to(ROOT))]), page
    counted = Counter(block.why for block in EVERY if block.language in RUN)
    assert counted[None] > counted.total() / 2, counted


#: Commands of other packages that blocks may have.
OTHERS = ("pip", "git", "cd", "mkdir", "scp", "pytest", "for", "export", "rattler-build", "docker", "datasette")


def test_blocks_that_do_not_run_could():
    """Python compiles; commands, their options, modules and files exist."""
    for block in EVERY:
        if block.why and block.language == "python":
            compile(block.text, str(block), "exec")
        elif block.why and block.language == "sh":
            for line in commands(block.text):
                check_command(line, f"{block}: {line}")


def check_command(line: str, where: str) -> None:
    _, words = words_of(line)
    if words[0] == "gensor-tune":
        parse(words[1:])
    elif words[0].startswith("python"):
        found = find_spec(words[2]) if words[1] == "-m" else (ROOT / words[1]).is_file()
        assert found or words[1] == "program.py", where  # program.py is the reader's
    elif words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(encoding="utf-8"), where
    else:
        assert words[0] in OTHERS, where


def parse(arguments: list[str]) -> None:
    """Raise unless gensor-tune takes these arguments."""
    group = typer_main.get_command(app.app)
    with group.make_context("gensor-tune", list(arguments)) as context:
        left = [*context._protected_args, *context.args]
        if left:
            group.commands[left[0]].make_context(left[0], left[1:], parent=context).close()


#: Several pages tune these two workloads, which are found in the database then.
SHAPES = "op,dtype,m,n,k,epilogue,shape\nmatmul,fp16,64,128,256,bias_relu,\nsoftmax,fp16,,,,,64x128\n"


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A folder with links to what a clone has, and with the databases that pages take for granted."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("examples", "benchmarks"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "few.csv").write_text(SHAPES, encoding="utf-8")
    layers = [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])]
    weights = {"w": np.ones((8, 3, 3, 3), np.float32)}
    model = proto(layers, {"x": ("float32", ("n", 3, 32, 32))}, {"y": ("n", 8, 30, 30)}, weights)
    onnx.save(model, folder / "model.onnx")
    with Store.open(folder / "kernels.db") as store:
        results = list(Run(lookup("sm_87"), store, Options(top=1, jobs=1)).rows(read_shapes(folder / "few.csv")))
    assert [result.status for _, result in results] == ["ok", "ok"]
    for name in ("orin.db", "other.db"):
        shutil.copy(folder / "kernels.db", folder / name)
    return folder


@pytest.fixture
def at_home(clone, monkeypatch):
    """Run in that folder, with the installed commands first on the path and no database but those of the page."""
    monkeypatch.chdir(clone)
    monkeypatch.setenv("GENSOR_DB", str(clone / "kernels.db"))
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    gensor_kernels.refresh()
    yield clone
    gensor_kernels.refresh()


class Reader:
    def __init__(self, monkeypatch, capsys):
        self.names: dict = {"__name__": "page"}
        self.patch, self.capsys = monkeypatch, capsys

    def follow(self, block: Block) -> None:
        getattr(self, block.language)(block)

    def csv(self, block: Block) -> None:
        path = Path(block.title or "block.csv")
        path.write_text(block.text, encoding="utf-8")
        assert [row.error for row in read_shapes(path)] == [None] * (len(block.text.splitlines()) - 1)

    def python(self, block: Block) -> None:
        """NumPy's arrays in place of CuPy's, and the emulator in the GPU's."""
        text = re.sub(r"\bimport cupy\b(?! as)", "import numpy as cupy", block.text)
        code = compile(text, str(ROOT / block.page), "exec")
        with contextlib.nullcontext() if "emulated" in text else gensor_kernels.emulated("sm_87"):
            exec(code, self.names)

    def sh(self, block: Block) -> None:
        for line in commands(block.text):
            variables, words = words_of(line)
            if words[0] != "gensor-tune" or SHELL.search(line.split("#")[0]):
                done = subprocess.run(["bash", "-euo", "pipefail", "-c", line], capture_output=True, text=True)
                assert done.returncode == 0, f"{block}: {line}\n{done.stderr}"
                continue
            with self.patch.context() as patch:
                for name, value in variables.items():
                    patch.setenv(name, value)
                self.tune(patch, words, f"{block}: {line}")

    def tune(self, patch, words: list[str], where: str) -> None:
        if words[1].startswith("-") and {"--shapes", "--model"} & set(words):
            words = [*words, *CHEAP]
        if "--kernel" in words:  # pages show the first digits of some digest
            with Store.open(words[words.index("--db") + 1], readonly=True) as store:
                words[words.index("--kernel") + 1] = next(iter(store.rows(Kernel))).digest[:8]
        patch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            app.main()
        out, err = self.capsys.readouterr()
        assert not ended.value.code, f"{where}\n{out}{err}"

    def sql(self, block: Block) -> None:
        """On the database that the page has made, or on one without rows."""
        with contextlib.closing(sqlite3.connect(":memory:")) as memory:
            memory.executescript((ROOT / "database" / "schema.sql").read_text(encoding="utf-8"))
            for query in filter(str.strip, block.text.split(";")):
                memory.execute(query).fetchall()


@pytest.fixture
def reader(at_home, monkeypatch, capsys):
    return Reader(monkeypatch, capsys)


@pytest.mark.parametrize("page", WITH_CODE)
def test_the_blocks_of_a_page_run(reader, page):
    for block in BLOCKS[page]:
        if block.language in RUN and not block.why:
            reader.follow(block)


def test_what_the_readme_computes_is_right(reader):
    first, second = [block for block in BLOCKS["README.md"] if block.language == "python" and not block.why]
    reader.follow(first)
    x, w, y = (reader.names[name].astype(float) for name in "xwy")
    wanted = x @ w
    wanted = 0.5 * wanted * (1 + np.tanh((2 / np.pi) ** 0.5 * (wanted + 0.044715 * wanted**3)))
    assert reader.names["y"].dtype == "float16" and np.abs(y - wanted).max() < 0.1
    reader.follow(second)
    assert reader.names["y"].shape == (8, 8) and (reader.names["y"] == 64).all()
