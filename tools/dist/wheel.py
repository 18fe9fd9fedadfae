#!/usr/bin/env python3
"""Builds the Python wheel: the installed tree below the package `softroce`, and its modules.

    wheel.py STAGE VERSION GLIBC ARCH DIRECTORY

The bytes depend on the contents and on SOURCE_DATE_EPOCH alone.
"""

import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

MODULES = pathlib.Path(__file__).parent / "python" / "softroce"

METADATA = """\
Metadata-Version: 2.1
Name: softroce
Version: {version}
Summary: RDMA over plain UDP, without root, kernel module or hardware
License: MIT OR Apache-2.0
Project-URL: Repository, https://github.com/softroce/softroce
Requires-Python: >=3.8
Description-Content-Type: text/markdown

`roce run -- PROGRAM` starts an unmodified RDMA program on softroce, a RoCEv2 adapter in user space.
`softroce.env()` returns the environment for a program started otherwise, and the fixture
`softroce_pair` gives a test of pytest two devices.
"""

ENTRY_POINTS = """\
[console_scripts]
roce = softroce.__main__:main

[pytest11]
softroce = softroce.pytest_plugin
"""


def main(stage, version, glibc, arch, directory):
    tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_{arch}"
    info = f"softroce-{version}.dist-info"
    files = {}
    for path in sorted(MODULES.glob("*.py")):
        files[f"softroce/{path.name}"] = (path.read_bytes(), 0o644)
    stage = pathlib.Path(stage)
    for folder in ("bin", "lib", "share/doc"):
        for path in sorted(path for path in (stage / folder).rglob("*") if path.is_file()):
            mode = 0o755 if folder == "bin" else 0o644
            files[f"softroce/{path.relative_to(stage)}"] = (path.read_bytes(), mode)
    wheel = f"Wheel-Version: 1.0\nGenerator: softroce\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/METADATA"] = (METADATA.format(version=version).encode(), 0o644)
    files[f"{info}/WHEEL"] = (wheel.encode(), 0o644)
    files[f"{info}/entry_points.txt"] = (ENTRY_POINTS.encode(), 0o644)
    record = "".join(f"{name},{digest(data)},{len(data)}\n" for name, (data, _) in files.items())
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)

    when = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
    path = pathlib.Path(directory) / f"softroce-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (data, mode) in files.items():
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data)


def digest(data):
    """Returns a hash as RECORD has it."""
    encoded = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={encoded.decode()}"


if __name__ == "__main__":
    main(*sys.argv[1:])
