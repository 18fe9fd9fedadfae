"""Tests of programs that use RDMA: `pip install` softroce's wheel, then `pytest`."""

import sys
import time

import pytest


def transfer(pair, program):
    """Runs a program of perftest between two devices."""
    server, client = pair
    listening = server.popen([program, "-n", "100"])
    # The client connects by TCP; until the server listens there it is refused.
    for _ in range(100):
        if client.run([program, "-n", "100", server.ip]).returncode == 0:
            break
        time.sleep(0.1)
    assert listening.wait(timeout=60) == 0


def test_write(softroce_pair):
    transfer(softroce_pair, "ib_write_bw")


@pytest.mark.softroce(impair="loss=0.02,reorder=0.02,seed=7")
def test_send_on_a_bad_network(softroce_pair):
    transfer(softroce_pair, "ib_send_bw")


def test_pyverbs(softroce_pair):
    """A test with pyverbs runs in a process of its own, which loads the library when it starts."""
    device, _ = softroce_pair
    program = """
import pyverbs.device as d
[device] = d.get_device_list()
with d.Context(name=device.name.decode()) as context:
    print(device.name.decode(), context.query_gid(1, 0))
"""
    result = device.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("softroce0 ")
