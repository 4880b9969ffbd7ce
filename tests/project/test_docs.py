"""The documentation against the code: options, variables, files, links, figures and families."""

import re
from pathlib import Path

import pytest

from gensor_database import PRETUNED, Store
from gensor_kernels.families.core import params
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_tuner.cli.app import app
from gensor_tuner.run.result import Result, json_fields
from gensor_tuner.search.actions import ACTIONS
from gensor_tuner.shapes.reader import read_shapes

from .test_packaging import PROJECT, ROOT

DOCS, FAMILY_PAGES = ROOT / "docs", ROOT / "gensor_kernels" / "families"
HOME = PROJECT["project"]["urls"]["Homepage"]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted(
        [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").glob("*.md"), *FAMILY_PAGES.rglob("README.md")]
    )
}
README = PAGES["README.md"]
DOCUMENTATION = "".join(
    text for name, text in PAGES.items() if name == "README.md" or name.startswith(("docs/", "gensor_kernels/"))
)
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def option_names() -> list[tuple[str, str]]:
    """(subcommand or "", option) of the whole command tree, without --help."""
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


def test_options_and_commands_are_those_of_the_documentation():
    options = option_names()
    names = {name for name, _ in options} | set(pytest.importorskip("typer.main").get_command(app).commands)
    assert {"", "show", "merge", "doctor"} <= names and ("", "--arch") in options and ("show", "--kernel") in options
    missing = [name for name in sorted(names - {""}) if f"gensor-tune {name}" not in DOCUMENTATION]
    missing += [option for _, option in options if not re.search(rf"(?<![\w-]){option}(?![\w-])", DOCUMENTATION)]
    assert not missing
    lines = re.findall(r"gensor-tune [^\n`]*", DOCUMENTATION)
    shown = {option for line in lines for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", line)}
    assert not shown - {option for _, option in options} - {"--help"}


def test_variables_are_those_that_the_code_reads():
    read = set(re.findall(r"""["'](GENSOR_[A-Z_]+)["']""", (ROOT / "gensor_kernels/config.py").read_text("utf-8")))
    assert {"GENSOR_DB", "GENSOR_TUNE", "GENSOR_DETERMINISTIC"} <= read
    assert not read - set(re.findall(r"GENSOR_[A-Z_]+", PAGES["docs/reference/settings.md"]))
    folders = ("gensor_kernels", "database", "tuner", "tests")
    code = "".join(path.read_text(encoding="utf-8") for folder in folders for path in (ROOT / folder).rglob("*.py"))
    assert not {name for name in re.findall(r"GENSOR_[A-Z_]+", DOCUMENTATION) if f'"{name}"' not in code}


def test_the_readme_is_complete_for_a_package_index():
    """It opens with its purpose and two commands; links and images are absolute and name existing files."""
    assert re.match(r"# gensor-kernels\n\n[A-Z][^\n]*kernels for \[CuPy\]", README) and len(README.split()) <= 1200
    first, second, *_ = [body.strip() for name, body in FENCE.findall(README) if name == "sh"]
    assert (first, second) == ("make demo", "make test")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in ("demo", "test"))
    own = HOME.removeprefix("https://")
    raw = own.replace("github.com", "raw.githubusercontent.com")
    targets = LINK.findall(README)
    assert len(targets) > 20 and all(target.startswith("https://") for target in targets)
    ours = [target for target in targets if own in target or raw in target]
    files = re.findall(rf"^https://(?:{own}/blob|{raw})/main/([^#\n]+)", "\n".join(ours), re.MULTILINE)
    assert len(files) > 15 and len(files) + ours.count(HOME) == len(ours)
    assert not [name for name in files if not (ROOT / name).is_file()]


def test_a_page_names_its_reader_and_is_no_book():
    pages = {name: text for name, text in PAGES.items() if name.startswith("docs/")}
    assert not [name for name, text in pages.items() if not re.match(r"# [^\n]+\n\nFor anyone who ", text)]
    assert not [name for name, text in PAGES.items() if len(text.split()) > 3000 and name != "CHANGELOG.md"]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub and the site give the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    words = [re.sub(r"[^\w -]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()) for heading in headings]
    return {each.replace(" ", "-") for each in words}


def test_links_lead_somewhere():
    broken = []
    for name, text in PAGES.items():
        for target in LINK.findall(FENCE.sub("", text)):
            path, _, anchor = target.removeprefix(f"{HOME}/blob/main/").partition("#")
            if "://" in path:
                continue
            base = ROOT if target.startswith(HOME) else (ROOT / name).parent
            found = (base / path).resolve() if path else ROOT / name
            page = PAGES.get(str(found.relative_to(ROOT)))
            if not found.exists() or (anchor and page is not None and anchor not in anchors(page)):
                broken.append((name, target))
    assert not broken


def test_every_page_names_one_repository():
    text = "".join([*PAGES.values(), (ROOT / "mkdocs.yml").read_text(encoding="utf-8")])
    assert {*re.findall(r"https://github\.com/[\w-]+/gensor-kernels\b", text)} == {HOME}


def test_files_named_in_the_documentation_exist():
    """A path in backquotes is one from the root or from gensor_kernels; comments name pages that exist."""
    gone = []
    for name, text in PAGES.items():
        if name.startswith("docs/") or name == "CONTRIBUTING.md":
            named = re.findall(r"`([\w./]+/[\w./]+\.(?:py|toml|cuh?|h|sql|csv))`?", FENCE.sub("", text))
            gone += [(name, path) for path in named if Path(path).parent.name != PRETUNED.name and not exists(path)]
    for folder in ("gensor_kernels", "database", "tuner", "benchmarks"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".cu", ".cuh", ".h", ".cpp", ".toml", ".sql"):
                named = re.findall(r"docs/[\w/-]*(?:\.md)?", path.read_text(encoding="utf-8"))
                gone += [(path, page) for page in named if not (ROOT / page).is_file()]
    assert not gone


def exists(path: str) -> bool:
    return any((base / path).is_file() for base in (ROOT, ROOT / "gensor_kernels"))


def test_the_keys_of_files_are_documented(tmp_path, gensor_tune):
    _, of_rows, of_records, _ = PAGES["docs/reference/formats.md"].split("\n## ")
    shapes = tmp_path / "shapes.csv"
    shapes.write_text("op,m,n,k\nmatmul,1,2,3\n", encoding="utf-8")
    (row,) = read_shapes(shapes)
    assert names_in_table(of_rows) == list(json_fields(row, Result(row.workload, "ok"), lookup("sm_87")))
    with Store.open(tmp_path / "empty.db"):
        pass
    assert gensor_tune("export", "{}/records.csv", "--db", "{}/empty.db")[0] == 0
    assert names_in_table(of_records) == (tmp_path / "records.csv").read_text(encoding="utf-8").strip().split(",")


def names_in_table(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)))


def test_figures_in_prose_are_those_of_the_code():
    with (ROOT / "examples" / "common_shapes.csv").open(encoding="utf-8") as file:
        rows = sum(not line.startswith("#") for line in file) - 1
    with Store.open(PRETUNED / "sm_90.db", readonly=True) as store:
        kernels = store.counts()["kernel"]
    facts = {
        r"`Params`[^.|]{0,40}?([\d,]+) bytes": params.SIZE,
        r"([\d,]+) rows of `examples/common_shapes\.csv`": rows,
        r"`examples/common_shapes\.csv` holds ([\d,]+)": rows,
        r"([\d,]+) kernels of `sm_90\.db`": kernels,
    }
    sources = [*PAGES.values(), *(path.read_text(encoding="utf-8") for path in (ROOT / "gensor_kernels").rglob("*.py"))]
    text = re.sub(r"\s+", " ", "\n".join(sources))
    for pattern, value in facts.items():
        stated = re.findall(pattern, text)
        assert stated and set(stated) == {f"{value:,}"}, (pattern, value, stated)


def test_no_page_or_message_installs_from_an_index_without_a_release():
    """Before the first release pip finds the package in a clone, or where it is installed already."""
    files = [ROOT / name for name in PAGES]
    files += [path for top in ("gensor_kernels", "tuner", "database") for path in (ROOT / top).rglob("*.py")]
    wrong = re.compile(r"pip install '?gensor-kernels\[\w[\w,]*\](?! @)")
    assert [path.name for path in files if wrong.search(path.read_text("utf-8"))] == ["install.md", "install.py"]


def test_every_action_is_in_the_documentation():
    page = PAGES["docs/construction-graph.md"]
    for action in ACTIONS:
        row = re.search(rf"^\| {action.__name__} \|.*\| (\w+)[^|]*\|$", page, re.MULTILINE)
        assert row and row[1] == ("yes" if action.paper else "no"), action.__name__


def test_every_family_is_in_the_documentation():
    folders = [Path(name).parent for name in PAGES if name.startswith("gensor_kernels/families/")]
    own = {"_".join(folder.parts[2:]) for folder in folders} & set(FAMILIES)
    page = PAGES["gensor_kernels/families/contraction/rewrite/README.md"]
    rewritten = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| `(\w+)` \|", page, re.MULTILINE))
    assert set(FAMILIES) == own | set(rewritten) and not own & set(rewritten)
    assert not [name for name in FAMILIES if name not in PAGES["gensor_kernels/families/README.md"]]
    assert not [name for name, main in rewritten.items() if FAMILIES[name].names != FAMILIES[main].names]
