"""Clusters that users run: schedulers that go and come back, workers of other versions, addresses that are wrong."""

import socket
import subprocess
import threading

import pytest

pytest.importorskip("distributed", reason="Dask is not installed")

import dask

from gensor_tuner.fleet import cluster as clusters
from gensor_tuner.fleet.cluster import Cluster, Fleet, FleetError
from gensor_tuner.tasks.local import Local
from tests.doubles.fleet import Stub
from tests.doubles.schedulers import free_port, process, scheduler, until, workers

pytestmark = [pytest.mark.fleet, pytest.mark.usefixtures("stubs")]


@pytest.fixture
def port():
    return free_port()


def test_workers_that_users_have_started_are_used(port, tmp_path):
    said = []
    first, address = workers(port, 1, folder=tmp_path / "1"), f"tcp://127.0.0.1:{port}"
    with scheduler(port), first, Cluster(address, said.append) as cluster:
        cluster.ready(["stub", "walk", "compile", "verify"])
        assert Fleet(cluster, Local(1)).map([Stub(3), Stub(4)]) == [3, 4] and not said
        assert cluster.counts == {"stub": 2} and cluster.jobs == 1
        # Tasks that wait for any worker are run by workers that come late.
        with workers(port, 1, folder=tmp_path / "2"):
            until(lambda: len(cluster.able("stub")) == 2)


def test_a_scheduler_that_is_restarted_costs_no_task(port, tmp_path):
    address, found = f"tcp://127.0.0.1:{port}", []
    tasks = [Stub(number, sleep=0.05) for number in range(60)]
    with Local(1) as here:
        with scheduler(port), workers(port, 1, folder=tmp_path / "1"):
            cluster = Cluster(address).__enter__()
            cluster.ready(["stub"])
            running = threading.Thread(target=lambda: found.append(Fleet(cluster, here).map(tasks)))
            running.start()
            until(lambda: cluster.counts["stub"] > 5)
        assert not found
        try:
            with scheduler(port), workers(port, 1, folder=tmp_path / "2"):
                running.join(60)
        finally:
            cluster.__exit__()
    assert found == [list(range(60))]


def test_a_scheduler_that_has_gone_ends_the_run(port, tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 3.0)
    with scheduler(port) as process, workers(port, 1, folder=tmp_path), Cluster(f"tcp://127.0.0.1:{port}") as cluster:
        cluster.ready(["stub"])
        process.kill()
        with pytest.raises(FleetError, match="has gone; what was reported is stored, and the same command goes on"):
            Fleet(cluster, Local(1)).map([Stub(1, sleep=1)])


def test_a_worker_with_another_nvrtc_compiles_nothing(port, tmp_path, monkeypatch):
    said = []
    other = workers(port, 1, folder=tmp_path, preload="tests.doubles.other_nvrtc")
    with scheduler(port), other, Cluster(f"tcp://127.0.0.1:{port}", said.append) as cluster:
        cluster.ready(["walk", "verify"])
        assert not cluster.able("compile") and len(cluster.able("walk")) == 1
        (line,) = said
        assert line.startswith("worker tcp://") and "cannot compile: its nvrtc is nvrtc 11.0.1, here it is " in line
        monkeypatch.setattr(clusters, "FIRST_SECONDS", 0.0)
        with pytest.raises(FleetError, match=r"no worker of .* can compile .*nvrtc 11\.0\.1"):
            cluster.ready(["compile"])


def test_a_worker_out_of_memory_costs_its_task_a_retry(port, tmp_path):
    task = Stub(5, str(tmp_path), "swell", 1)
    limited = workers(port, 2, "--memory-limit", "700MB", folder=tmp_path / "1")
    with scheduler(port), limited, Cluster(f"tcp://127.0.0.1:{port}") as cluster:
        cluster.ready(["stub"])
        assert Fleet(cluster, Local(1)).map([task]) == [5] and task.runs() == 2


def refused(address, **settings):
    """The sentence of a run that cannot use a cluster."""
    with dask.config.set(settings), pytest.raises(FleetError) as found, Cluster(address):
        pass
    assert "\n" not in str(found.value)
    return str(found.value)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 1.0)


ADDRESSES = {
    "tcp://127.0.0.1:{}": "no scheduler answers at tcp://127.0.0.1:{}: ",
    "tls://127.0.0.1:{}": "the scheduler at tls://127.0.0.1:{} cannot be used: TLS expects a ",
    "dask": "the scheduler at dask cannot be used: Dask's configuration names none: set DASK_SCHEDULER_ADDRESS",
}


@pytest.mark.parametrize(("address", "words"), ADDRESSES.items())
def test_an_address_that_cannot_be_used_is_one_sentence(port, impatient, address, words):
    assert refused(address.format(port), **{"scheduler-address": None}).startswith(words.format(port))


@pytest.mark.parametrize(
    "greeting, why",
    [(b"", "no answer in time"), (b"HTTP/1.1 400 Bad Request\r\n\r\n" + 99 * b"x", "the program there is not Dask's")],
)
def test_another_program_that_listens_is_one_sentence(impatient, greeting, why):
    kept = []

    def greet():
        while True:
            try:
                kept.append(listening.accept()[0])
            except OSError:
                return
            kept[-1].sendall(greeting)

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        threading.Thread(target=greet, daemon=True).start()
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        assert refused(address) == f"no scheduler answers at {address}: {why}"
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("deaths", [1, 2])
def test_processes_that_end_while_they_start_cost_one_more_attempt(monkeypatch, deaths):
    import distributed

    starts = []

    class Dying(distributed.LocalCluster):
        def __init__(self, **options):
            starts.append(self)
            super().__init__(**options | {"n_workers": 0})

        async def _start(self):
            await super()._start()
            if len(starts) <= deaths:
                raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr(distributed, "LocalCluster", Dying)
    if deaths == 1:
        Cluster("local:1").__enter__().__exit__()
    else:
        why = "the processes of --cluster local:1 end while they start: Nanny failed to start."
        assert refused("local:1") == why
    assert len(starts) == 2


def test_certificates_of_others_are_one_sentence(port, tmp_path, impatient, monkeypatch):
    ours, theirs = certificates(tmp_path / "ours"), certificates(tmp_path / "theirs")
    with scheduler(port, "--protocol", "tls", **environment(ours)):
        assert "TLS" in refused(f"tls://127.0.0.1:{port}", **theirs)
        monkeypatch.setattr(clusters, "FIRST_SECONDS", 0.0)
        address, nobody = f"tls://127.0.0.1:{port}", pytest.raises(FleetError, match=r"no worker of tls://")
        with dask.config.set(ours), nobody, Cluster(address) as cluster:
            cluster.ready(["stub"])


@pytest.mark.nightly
def test_a_worker_with_certificates_of_others_says_so_and_one_with_ours_serves(port, tmp_path):
    ours, theirs = certificates(tmp_path / "ours"), certificates(tmp_path / "theirs")
    address = f"tls://127.0.0.1:{port}"
    worker = ("gensor_tuner.cli.start", "fleet", "worker", "--scheduler", address, "--jobs", "1", "--scratch")
    log = tmp_path / "said.txt"
    with scheduler(port, "--protocol", "tls", **environment(ours)):
        with process(*worker, str(tmp_path / "1"), log=log, **environment(theirs)):
            until(lambda: f"waiting for a scheduler at {address}: TLS fails: " in log.read_text(), 30.0)
        serving = process(*worker, str(tmp_path / "2"), **environment(ours))
        with serving, dask.config.set(ours), Cluster(address) as cluster:
            cluster.ready(["compile"])


def environment(settings):
    return {f"DASK_{name.upper().replace('.', '__')}": value for name, value in settings.items()}


def certificates(folder):
    """Dask's settings for a new certificate that signs itself."""
    folder.mkdir()
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1".split()
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
    subprocess.run(command, check=True, capture_output=True)
    settings = {"distributed.comm.tls.ca-file": str(cert)}
    for role in ("client", "scheduler", "worker"):
        settings |= {f"distributed.comm.tls.{role}.cert": str(cert), f"distributed.comm.tls.{role}.key": str(key)}
    return settings
