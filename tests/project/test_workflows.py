"""The workflows: which code gets onto the machine with a GPU, who may publish, and that what they name is there."""

import re
import subprocess

import pytest
import yaml

from .structure import ROOT

FOLDER = ROOT / ".github" / "workflows"
CHECKOUT = "actions/checkout@"
#: Events that only people with write access bring about, for code of theirs or merged code.
TRUSTED = {"push", "schedule", "workflow_dispatch"}


def parsed(text: str) -> dict:
    """A workflow; every scalar is a string, so that `on` stays one."""
    return yaml.load(text, Loader=yaml.BaseLoader)


#: Those of the project, and one that the documentation gives away.
FILES = [*sorted(FOLDER.glob("*.yml")), ROOT / "docs" / "fleet" / "tune-matrix.yml"]
WORKFLOWS = {path.stem: parsed(path.read_text(encoding="utf-8")) for path in FILES}
EVERY = pytest.mark.parametrize("name", WORKFLOWS, ids="{}.yml".format)  # an id `gpu` reads as that marker


def steps(workflow: dict) -> list[dict]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def scalars(node: object) -> list[str]:
    """Every string below a node."""
    if isinstance(node, dict | list):
        return [text for child in (node.values() if isinstance(node, dict) else node) for text in scalars(child)]
    return [str(node)]


def objections(workflow: dict) -> list[str]:
    """Return how code that nobody has read could get onto a runner of our own."""
    on, found = workflow["on"], []
    for name, job in workflow["jobs"].items():
        machines = scalars(job.get("runs-on", "")) + scalars(job.get("strategy", {}))
        if not any("self-hosted" in each or each == "gpu" for each in machines):
            continue
        found += [f"{name} runs on {event}" for event in on if event not in TRUSTED]
        if "push" in on and on["push"] != {"branches": ["main"]}:
            found.append(f"{name} runs on pushes that are not merged")
        if "workflow_dispatch" in on:
            inputs = (on["workflow_dispatch"] or {}).get("inputs", {})
            if inputs.get("commit", {}).get("required") != "true":
                found.append(f"{name} can be started without naming a commit")
            if "COMMIT" not in job["steps"][0].get("env", {}):
                found.append(f"{name} looks at the commit too late")
        if not job.get("environment"):
            found.append(f"{name} waits for no reviewer")
        checkouts = [step for step in job["steps"] if step.get("uses", "").startswith(CHECKOUT)]
        if [step.get("with", {}).get("ref") for step in checkouts] != ["${{ inputs.commit || github.sha }}"]:
            found.append(f"{name} checks out something else than the reviewed commit")
    return found


@EVERY
def test_runners_of_our_own_get_reviewed_code_only(name):
    assert not objections(WORKFLOWS[name])


def test_the_gpu_workflow_is_among_them():
    assert "self-hosted" in scalars(WORKFLOWS["gpu"]["jobs"]["device"]["runs-on"])


def test_a_label_is_no_review():
    """A label stays on a pull request, and later pushes to it run unread."""
    workflow = parsed("""
        on: {workflow_dispatch: , pull_request: {types: [labeled, synchronize]}}
        jobs:
          device:
            if: contains(github.event.pull_request.labels.*.name, 'gpu')
            runs-on: [self-hosted, linux, gpu]
            steps: [{uses: actions/checkout@v4}]
    """)
    assert objections(workflow) == [
        "device runs on pull_request",
        "device can be started without naming a commit",
        "device looks at the commit too late",
        "device waits for no reviewer",
        "device checks out something else than the reviewed commit",
    ]


def test_branches_that_are_not_merged_are_refused():
    assert "device runs on pushes that are not merged" in objections(
        parsed("{on: {push: }, jobs: {device: {runs-on: self-hosted, environment: gpu, steps: []}}}")
    )


@pytest.mark.parametrize(
    ("commit", "code"), [("0123456789abcdef" * 2 + "01234567", 0), ("main", 1), ("3db1c8d", 1), ("0" * 40 + "; id", 1)]
)
def test_only_a_full_hash_names_a_commit(commit, code):
    script = WORKFLOWS["gpu"]["jobs"]["device"]["steps"][0]["run"]
    assert subprocess.run(["bash", "-e", "-c", script], env={"COMMIT": commit}).returncode == code


@EVERY
def test_a_workflow_may_read_and_only_publishing_may_do_more(name):
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] == {"contents": "read"}
    granted = {job: each["permissions"] for job, each in workflow["jobs"].items() if "permissions" in each}
    allowed = {
        "docs": {"publish": {"pages": "write", "id-token": "write"}},
        "release": {"publish": {"id-token": "write"}},
    }
    assert granted == allowed.get(name, {})
    assert not {"pull_request_target", "workflow_run", "issue_comment"} & set(workflow["on"])


@EVERY
def test_no_checkout_leaves_its_token_behind(name):
    checkouts = [step for step in steps(WORKFLOWS[name]) if step.get("uses", "").startswith(CHECKOUT)]
    assert all(step.get("with", {}).get("persist-credentials") == "false" for step in checkouts)


@EVERY
def test_actions_of_others_are_pinned_to_a_commit(name):
    """Those of GitHub itself to their major version."""
    for action in [step["uses"] for step in steps(WORKFLOWS[name]) if "uses" in step]:
        pattern = r"@v\d+\Z" if action.startswith("actions/") else r"@[0-9a-f]{40}\Z"
        assert re.search(pattern, action), action


@EVERY
def test_what_is_named_is_there(name):
    """Targets of the Makefile, and files and folders of tests, in commands and in the matrix."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(VENV)", ".venv")
    words = [word for text in scalars(WORKFLOWS[name]["jobs"]) for word in text.split()]
    for path in (match[1] for word in words if (match := re.match(r"[\"@]*(tests/[\w./-]+)", word))):
        assert (ROOT / path).exists(), path
    for target in re.findall(r"^make ([.\w/-]+)", "\n".join(scalars(WORKFLOWS[name]["jobs"])), re.MULTILINE):
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), target


def test_a_release_is_a_tag_and_waits_for_every_check():
    release = WORKFLOWS["release"]
    assert release["on"] == {"push": {"tags": ["v*"]}}
    publish = release["jobs"]["publish"]
    assert set(publish["needs"]) == set(release["jobs"]) - {"publish"} >= {"checks", "pretuned", "install"}
    assert publish["environment"] == "pypi"
    assert not [step for step in publish["steps"] if "run" in step]  # nothing of ours runs where uploads are signed
    text = (FOLDER / "release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text and "password" not in text


def test_a_release_rebuilds_every_shipped_database():
    matrix = WORKFLOWS["release"]["jobs"]["pretuned"]["strategy"]["matrix"]
    assert sorted(matrix["arch"]) == sorted(path.stem for path in (ROOT / "database" / "pretuned").glob("*.db"))


def test_checks_run_where_the_package_promises_to_run():
    jobs = WORKFLOWS["checks"]["jobs"]
    machines = {jobs[name]["runs-on"] for name in ("test", "aarch64", "windows")}
    assert machines == {"ubuntu-24.04", "ubuntu-24.04-arm", "windows-2025"}
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    promised = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert jobs["test"]["strategy"]["matrix"]["python"] == promised


def test_updates_are_asked_for():
    updates = parsed((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))["updates"]
    assert {each["package-ecosystem"] for each in updates} == {"github-actions", "pip"}
