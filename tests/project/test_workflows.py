"""The workflows: which code gets onto the machine with a GPU, who may publish, and which files they name."""

import re
import subprocess

import yaml

from .structure import ROOT

FOLDER = ROOT / ".github" / "workflows"
CHECKOUT = "actions/checkout@"
#: Events that only people with write access bring about, for code of theirs or merged code.
TRUSTED = {"push", "schedule", "workflow_dispatch"}


def parse(text: str) -> dict:
    return yaml.load(text, Loader=yaml.BaseLoader)


#: The project's, and one of the documentation to copy.
FILES = [*sorted(FOLDER.glob("*.yml")), ROOT / "docs" / "fleet" / "tune-matrix.yml"]
WORKFLOWS = {path.stem: parse(path.read_text(encoding="utf-8")) for path in FILES}


def scalars(node: object) -> list[str]:
    if isinstance(node, dict | list):
        return [text for child in (node.values() if isinstance(node, dict) else node) for text in scalars(child)]
    return [str(node)]


def objections(workflow: dict) -> list[str]:
    """Return how unread code could get onto one of our runners."""
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


def test_our_runners_get_reviewed_code_only():
    assert not {name: found for name, workflow in WORKFLOWS.items() if (found := objections(workflow))}
    assert "self-hosted" in scalars(WORKFLOWS["gpu"]["jobs"]["device"]["runs-on"])


def test_labels_and_unmerged_branches_are_no_review():
    """A label stays on a pull request, and later pushes to it run unread."""
    workflow = parse("""
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
    assert "device runs on pushes that are not merged" in objections(
        parse("{on: {push: }, jobs: {device: {runs-on: self-hosted, environment: gpu, steps: []}}}")
    )


def test_only_a_full_hash_names_a_commit():
    script = WORKFLOWS["gpu"]["jobs"]["device"]["steps"][0]["run"]
    for commit, code in {"0123456789abcdef" * 2 + "01234567": 0, "main": 1, "3db1c8d": 1, "0" * 40 + "; id": 1}.items():
        assert subprocess.run(["bash", "-e", "-c", script], env={"COMMIT": commit}).returncode == code, commit


def test_a_workflow_may_read_and_only_publishing_may_do_more():
    publishing = {"docs": {"pages": "write", "id-token": "write"}, "release": {"id-token": "write"}}
    allowed = {name: {"publish": rights} for name, rights in publishing.items()}
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name
        granted = {job: each["permissions"] for job, each in workflow["jobs"].items() if "permissions" in each}
        assert granted == allowed.get(name, {}), name
        assert not {"pull_request_target", "workflow_run", "issue_comment"} & set(workflow["on"]), name


def test_targets_and_tests_that_workflows_name_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(VENV)", ".venv")
    for name, workflow in WORKFLOWS.items():
        words = [word for text in scalars(workflow["jobs"]) for word in text.split()]
        for path in (match[1] for word in words if (match := re.match(r"[\"@]*(tests/[\w./-]+)", word))):
            assert (ROOT / path).exists(), (name, path)
        for target in re.findall(r"^make ([.\w/-]+)", "\n".join(scalars(workflow["jobs"])), re.MULTILINE):
            assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), (name, target)


def test_a_release_is_a_tag_and_waits_for_every_check():
    release = WORKFLOWS["release"]
    assert release["on"] == {"push": {"tags": ["v*"]}}
    publish = release["jobs"]["publish"]
    assert set(publish["needs"]) == set(release["jobs"]) - {"publish"} >= {"checks", "pretuned", "install"}
    assert publish["environment"] == "pypi"
    assert not [step for step in publish["steps"] if "run" in step]  # nothing of ours runs where uploads are signed
    text = (FOLDER / "release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text and "password" not in text
    matrix = release["jobs"]["pretuned"]["strategy"]["matrix"]  # every shipped database is built again
    assert sorted(matrix["arch"]) == sorted(path.stem for path in (ROOT / "database" / "pretuned").glob("*.db"))


def test_checks_run_where_the_package_promises_to_run():
    jobs = WORKFLOWS["checks"]["jobs"]
    machines = {jobs[name]["runs-on"] for name in ("test", "aarch64", "windows")}
    assert machines == {"ubuntu-24.04", "ubuntu-24.04-arm", "windows-2025"}
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    promised = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert jobs["test"]["strategy"]["matrix"]["python"] == promised
