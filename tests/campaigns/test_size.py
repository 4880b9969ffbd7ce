"""The seed of a campaign's sample: of the commit, of the environment, and fixed where there is neither."""

import subprocess

from tests import campaign_size as size


def test_the_commit_seeds_the_sample(tmp_path, monkeypatch):
    monkeypatch.delenv("GENSOR_CAMPAIGN_SEED", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert size.seed_of(tmp_path) == size.WITHOUT_GIT
    script = "git init -q; git -c user.name=a -c user.email=a@b -c commit.gpgsign=false commit -q --allow-empty -m a"
    done = subprocess.run(
        ["sh", "-c", f"{script}; git rev-parse HEAD"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert size.seed_of(tmp_path) == int(done.stdout[:8], 16)
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
