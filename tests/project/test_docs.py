"""The documentation against the code: options, variables, files and links."""

import json
import re
from pathlib import Path

import pytest

from gensor_database import PRETUNED, Store
from gensor_kernels.machine.arch import lookup
from gensor_kernels.programs.core import params
from gensor_tuner.cli.app import app
from gensor_tuner.run.result import Result, json_line
from gensor_tuner.search.actions import ACTIONS
from gensor_tuner.shapes.reader import read_shapes

from .test_packaging import PROJECT, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def fences(text: str, language: str) -> list[str]:
    return [body for name, body in FENCE.findall(text) if name == language]


def documentation() -> str:
    return README + "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))


def option_names() -> list[tuple[str, str]]:
    """(subcommand or "", option) of the whole command tree, but the --help every command has."""
    typer_main = pytest.importorskip("typer.main")
    group = typer_main.get_command(app)
    commands = {"": group, **group.commands}
    for name, command in group.commands.items():
        commands |= {f"{name} {below}": each for below, each in getattr(command, "commands", {}).items()}
    return [
        (name, option)
        for name, command in commands.items()
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("-") and parameter.name != "help"
    ]


def test_every_option_and_subcommand_is_documented():
    options = option_names()
    names = {name for name, _ in options} | set(pytest.importorskip("typer.main").get_command(app).commands)
    assert {"", "show", "merge", "doctor"} <= names and ("", "--arch") in options and ("show", "--kernel") in options
    text = documentation()
    missing = [name for name in sorted(names - {""}) if f"gensor-tune {name}" not in text]
    missing += [option for _, option in options if not re.search(rf"(?<![\w-]){option}(?![\w-])", text)]
    assert not missing


def test_every_documented_option_exists():
    real = {option for _, option in option_names()} | {"--help"}
    shown = set()
    for page in (README, documentation()):
        for line in re.findall(r"gensor-tune [^\n`]*", page):
            shown |= set(re.findall(r"(?<![\w-])--[a-z][\w-]*", line))
    assert {"--arch", "--shapes", "--kernel"} <= shown
    assert shown <= real


def test_every_variable_the_settings_read_is_documented():
    source = (ROOT / "gensor_kernels" / "config.py").read_text(encoding="utf-8")
    read = set(re.findall(r"""["'](GENSOR_[A-Z_]+)["']""", source))
    assert {"GENSOR_DB", "GENSOR_TUNE", "GENSOR_DETERMINISTIC"} <= read
    assert not read - set(
        re.findall(r"GENSOR_[A-Z_]+", (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8"))
    )


def test_every_variable_the_documentation_names_is_read_somewhere():
    named = set(re.findall(r"GENSOR_[A-Z_]+", documentation()))
    code = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("gensor_kernels", "database", "tuner", "tests")
        for path in (ROOT / folder).rglob("*.py")
    )
    assert not {name for name in named if f'"{name}"' not in code}


def test_the_first_two_commands_of_the_readme():
    first, second, *_ = fences(README, "sh")
    assert first.strip() == "make demo" and second.strip() == "make test"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_the_readme_opens_with_what_it_is_for():
    assert re.match(r"# gensor-kernels\n\n[A-Z][^\n]*kernels for \[CuPy\]", README)


def test_links_of_the_readme_work_on_a_package_index():
    """Links and images are absolute; those into the repository name files that are there."""
    urls = PROJECT["project"]["urls"]
    own = urls["Homepage"].removeprefix("https://")
    raw = own.replace("github.com", "raw.githubusercontent.com")
    targets = LINK.findall(README)
    assert len(targets) > 20 and all(target.startswith("https://") for target in targets)
    ours = [target for target in targets if own in target or raw in target]
    files = re.findall(rf"^https://(?:{own}/blob|{raw})/main/([^#\n]+)", "\n".join(ours), re.MULTILINE)
    assert len(files) > 15 and len(files) + ours.count(urls["Homepage"]) == len(ours)
    assert not [name for name in files if not (ROOT / name).is_file()]


def test_the_readme_is_read_in_five_minutes():
    assert len(README.split()) <= 1300


def test_every_page_names_one_repository():
    """Clones and links of any page are those of pyproject.toml."""
    name = PROJECT["project"]["urls"]["Homepage"]
    for page in (*PAGES, ROOT / "mkdocs.yml"):
        for found in re.findall(r"https://github\.com/[\w-]+/gensor-kernels\b", page.read_text(encoding="utf-8")):
            assert found == name, page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path):
    text = page.read_text(encoding="utf-8")
    targets = [target.split("#")[0] for target in LINK.findall(text) if "://" not in target]
    assert not [target for target in targets if target and not (page.parent / target).exists()]


@pytest.mark.parametrize("page", [*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_files_named_in_the_documentation_exist(page: Path):
    """A path in backquotes is one from the root or, as docs/architecture.md says, from gensor_kernels."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    named = re.findall(r"`([\w./]+/[\w./]+\.(?:py|toml|cuh?|h|sql|csv))`?", text)
    gone = [name for name in named if not any((base / name).is_file() for base in (ROOT, ROOT / "gensor_kernels"))]
    assert not [name for name in gone if Path(name).parent.name != PRETUNED.name]


def test_comments_that_point_at_the_documentation_point_at_files():
    found = {}
    for folder in ("gensor_kernels", "database", "tuner", "benchmarks"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".cu", ".cuh", ".h", ".cpp", ".toml", ".sql"):
                for name in re.findall(r"docs/[\w/-]*(?:\.md)?", path.read_text(encoding="utf-8")):
                    found[name] = path
    assert found and not {name: path for name, path in found.items() if not (ROOT / name).is_file()}


def test_the_keys_of_files_are_documented(tmp_path, gensor_tune):
    page = (ROOT / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
    _, of_rows, of_records, _ = page.split("\n## ")
    shapes = tmp_path / "shapes.csv"
    shapes.write_text("op,m,n,k\nmatmul,1,2,3\n", encoding="utf-8")
    (row,) = read_shapes(shapes)
    assert documented(of_rows) == list(json.loads(json_line(row, Result(row.workload, "ok"), lookup("sm_87"))))
    with Store.open(tmp_path / "empty.db"):
        pass
    assert gensor_tune("export", "{}/records.csv", "--db", "{}/empty.db")[0] == 0
    assert documented(of_records) == (tmp_path / "records.csv").read_text(encoding="utf-8").strip().split(",")


def test_figures_in_prose_are_those_of_the_code():
    """A figure that code or a file has is the same wherever a page or a docstring states it."""
    with (ROOT / "examples" / "common_shapes.csv").open(encoding="utf-8") as file:
        rows = sum(not line.startswith("#") for line in file) - 1
    with Store.open(PRETUNED / "sm_90.db", readonly=True) as store:
        kernels = store.counts()["kernel"]
    facts = {
        r"`Params`[^.|]{0,40}?([\d,]+) bytes": params.SIZE,
        r"([\d,]+) rows of `examples/common_shapes\.csv`": rows,
        r"([\d,]+)(?: kernels of `sm_90\.db`| that ship now)": kernels,
    }
    sources = [*PAGES, *(ROOT / "gensor_kernels").rglob("*.py")]
    text = re.sub(r"\s+", " ", "\n".join(page.read_text(encoding="utf-8") for page in sources))
    for pattern, value in facts.items():
        stated = re.findall(pattern, text)
        assert stated and set(stated) == {f"{value:,}"}, (pattern, value, stated)


def test_no_page_or_message_installs_from_an_index_without_a_release():
    """Before the first release pip finds the package in a clone, or where it is installed already."""
    files = [*PAGES, *(path for top in ("gensor_kernels", "tuner", "database") for path in (ROOT / top).rglob("*.py"))]
    wrong = re.compile(r"pip install '?gensor-kernels\[\w[\w,]*\](?! @)")
    found = [path.name for path in files if wrong.search(path.read_text(encoding="utf-8"))]
    assert found == ["install.md", "install.py"]


def documented(text: str) -> list[str]:
    """The names in the first column of a table."""
    return re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)))


def test_every_action_is_in_the_documentation():
    text = (ROOT / "docs" / "construction-graph.md").read_text(encoding="utf-8")
    for action in ACTIONS:
        row = re.search(rf"^\| {action.__name__} \|.*\| (\w+)[^|]*\|$", text, re.MULTILINE)
        assert row, action.__name__
        assert row[1] == ("yes" if action.paper else "no"), action.__name__
