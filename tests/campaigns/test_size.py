"""The seed of a campaign's sample: of the commit, of the environment, and fixed where there is neither."""

import subprocess

from tests import campaign_size as size


def test_the_commit_seeds_the_sample(tmp_path, monkeypatch):
    monkeypatch.delenv("GENSOR_CAMPAIGN_SEED", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert size.seed_of(tmp_path) == size.WITHOUT_GIT
    own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for command in (["init", "-q"], [*own, "commit", "-q", "--allow-empty", "-m", "a"]):
        assert size.seed_of(tmp_path) == size.WITHOUT_GIT
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    log = subprocess.run(["git", "log", "--format=%H"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert size.seed_of(tmp_path) == int(log.stdout.strip()[:8], 16)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert size.seed_of(tmp_path) == size.WITHOUT_GIT
    monkeypatch.setenv("GENSOR_CAMPAIGN_SEED", "12")
    assert size.seed_of(tmp_path) == 12


def test_samples_are_spread_evenly_and_differ_by_seed(monkeypatch):
    monkeypatch.setattr(size, "FULL", False)
    drawn = set()
    for seed in range(20):
        monkeypatch.setattr(size, "SEED", seed)
        some = size.sample(range(1000), 10)
        assert [point // 100 for point in some] == list(range(10)) and some == size.sample(range(1000), 10)
        drawn |= set(some)
    assert len(drawn) > 150
    monkeypatch.setattr(size, "FULL", True)
    assert size.sample(range(1000), 10) == list(range(1000)) and len(size.sample(range(1000), 10, 60)) == 60
