"""A plugin of pytest: the fixture `softroce_pair`, two devices for the programs of a test.

    @pytest.mark.softroce(impair="loss=0.01,seed=7")
    def test_transfer(softroce_pair):
        server, client = softroce_pair
        with server.popen(["ib_write_bw"]) as listening:
            client.run(["ib_write_bw", server.ip], timeout=60).check_returncode()

After the test the packets of both devices have been checked; a violation of the protocol fails the test. The option
`--softroce-keep DIRECTORY` keeps the captures.
"""

import dataclasses
import os
import pathlib
import subprocess
import typing

import pytest

import softroce

# Loopback addresses of the pairs: 127.77.WORKER.1 and .2, so that tests run beside each other and beside programs with
# the default addresses.
NETWORK = "127.77"


@dataclasses.dataclass
class Device:
    """A device for one program at a time."""

    ip: str
    variables: typing.Dict[str, str]
    _started: typing.List[subprocess.Popen] = dataclasses.field(default_factory=list)

    @property
    def env(self):
        """Environment for a program that uses the device."""
        return {**os.environ, **self.variables}

    def run(self, command, **keywords):
        """Runs a program to its end, as `subprocess.run` does."""
        return subprocess.run(command, env=self.env, **keywords)

    def popen(self, command, **keywords):
        """Starts a program, which is ended after the test if it still runs."""
        process = subprocess.Popen(command, env=self.env, **keywords)
        self._started.append(process)
        return process

    def _end(self):
        for process in self._started:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(timeout=5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def pytest_addoption(parser):
    parser.getgroup("softroce").addoption(
        "--softroce-keep", metavar="DIRECTORY", help="keep the captures of softroce_pair there")


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "softroce(impair=SPEC, via=PORT): options of the devices of softroce_pair")


@pytest.fixture
def softroce_pair(request, tmp_path):
    """Two devices at loopback addresses of their own, with the options of the marker `softroce`."""
    marker = request.node.get_closest_marker("softroce")
    options = dict(marker.kwargs) if marker else {}
    keep = request.config.getoption("--softroce-keep")
    captures = pathlib.Path(keep) / request.node.name.replace("/", "_") if keep else tmp_path
    captures.mkdir(parents=True, exist_ok=True)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    network = f"{NETWORK}.{int(worker.lstrip('gw')) % 256}"
    devices = []
    for number in (1, 2):
        ip = f"{network}.{number}"
        pcap = str(captures / f"softroce-{number}-%p.pcapng")
        devices.append(Device(ip, softroce.env(ip=ip, pcap=pcap, **options)))
    yield tuple(devices)
    for device in devices:
        device._end()
    files = sorted(str(path) for path in captures.glob("softroce-?-*.pcapng"))
    if files:
        checked = subprocess.run([softroce.roce(), "check", *files], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if checked.returncode != 0:
            pytest.fail(f"roce check:\n{checked.stdout}", pytrace=False)
