"""The recipes in docs/packaging against pyproject.toml, from which they repeat names and bounds."""

import re

import yaml

from .test_packaging import PROJECT, ROOT

FOLDER = ROOT / "docs" / "packaging"
PAGE = (ROOT / "docs" / "packaging.md").read_text(encoding="utf-8")
EXTRAS = PROJECT["project"]["optional-dependencies"]
#: Names on conda-forge, where they are others.
CONDA = {"opt-einsum": "opt_einsum", "nvidia-cuda-nvrtc-cu12": "cuda-nvrtc", "nvidia-cuda-nvdisasm": "cuda-nvdisasm"}


def conda(requirement: str) -> str:
    """A requirement of pyproject.toml as conda writes it."""
    name, bounds = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?([^;]*)(?:;.*)?", requirement).groups()
    bounds = bounds.strip().removeprefix("==")
    if name == "nvidia-cuda-nvdisasm":  # of CUDA 12.9, as everything in the environment; its wheel begins at 13.2
        bounds = ""
    return f"{CONDA.get(name, name)} {bounds}".strip()


def test_the_conda_recipe_requires_what_the_package_requires():
    recipe = yaml.safe_load((FOLDER / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    runtime, tuner = recipe["outputs"]
    project = PROJECT["project"]
    assert recipe["context"]["version"] == project["version"]
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["about"]["repository"] == project["urls"]["Homepage"]
    scripts = {f"{name} = {place}" for name, place in project["scripts"].items()}
    assert scripts == {*runtime["build"]["python"]["entry_points"]}
    host = [line.replace(" ", "") for line in runtime["requirements"]["host"][2:]]
    assert set(PROJECT["build-system"]["requires"]) == {*host}
    (_, *needed) = runtime["requirements"]["run"]
    assert needed == [conda(line) for line in project["dependencies"]]
    assert runtime["requirements"]["run_constraints"] == ["cupy " + EXTRAS["cu12"][0].removeprefix("cupy-cuda12x")]
    of_conda = {'${{ pin_subpackage("gensor-kernels", exact=True) }}', "__linux", "gxx", "cuda-version 12.9.*"}
    needed = set(tuner["requirements"]["run"])
    assert of_conda < needed and needed - of_conda == {conda(line) for line in EXTRAS["tune"]}


def test_the_dockerfile_installs_extras_that_exist_and_the_page_builds_its_stages():
    text = (FOLDER / "jetpack6.Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^ARG BASE=\S+/l4t-jetpack:r36\.\d+\.\d+$", text, re.MULTILINE)
    extras = re.findall(r"\*\.whl\)\[(\w+)\]", text)
    assert extras == ["cu12", "tune"] and set(extras) <= EXTRAS.keys()
    stages = re.findall(r"^FROM \S+ AS (\w+)$", text, re.MULTILINE)
    assert stages == ["runtime", "tuner"]
    assert set(re.findall(r"--target (\w+)", PAGE + text)) == {"runtime"}
    for command in re.findall(r"docker build .*", text):
        assert command in PAGE


def test_the_page_names_every_setting_that_the_workflows_rely_on():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for environment in re.findall(r"^    environment: (\w+)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            assert f"environment `{environment}`" in PAGE
