"""RDMA over plain UDP: the command `roce`, and the environment in which programs use it.

The package contains the command and its libraries; it imports no other package.
"""

import pathlib
import shlex
import subprocess

__all__ = ["env", "roce", "run"]


def roce():
    """Returns the path of the command `roce`."""
    return str(pathlib.Path(__file__).parent / "bin" / "roce")


def _options(ip=None, via=None, impair=None, pcap=None, name=None):
    """Returns options of `roce run`."""
    if ip is not None and not isinstance(ip, str):
        ip = ",".join(str(one) for one in ip)
    values = {"--ip": ip, "--via": via, "--impair": impair, "--pcap": pcap, "--name": name}
    return [f"{option}={value}" for option, value in values.items() if value is not None]


def env(**options):
    """Returns the environment variables that make a program use softroce.

    Options are those of `roce run`: `ip` (an address or several), `via`, `impair`, `pcap` and `name`.
    Raises `subprocess.CalledProcessError` if `roce` refuses one; its `stderr` has the reason.

        subprocess.run(["ib_write_bw"], env={**os.environ, **softroce.env(impair="loss=0.01")})
    """
    command = [roce(), "run", "--env", *_options(**options)]
    printed = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE).stdout
    words = (word for word in shlex.split(printed) if word != "export")
    return dict(word.split("=", 1) for word in words)


def run(command, check_packets=False, options=None, **keywords):
    """Runs a program on softroce as `subprocess.run` does, and returns its result.

    `options` is a dictionary of the options of `env`. With `check_packets` the exit status is 1 after a
    violation of the protocol, and standard error has the findings.
    """
    check = ["--check"] if check_packets else []
    line = [roce(), "run", *check, *_options(**(options or {})), "--", *command]
    return subprocess.run(line, **keywords)
