#!/usr/bin/env python3
"""Builds an image in the layout of the Open Container Initiative (image-spec 1.0) from layers.

    oci.py LAYERS VERSION ARCH DIRECTORY

LAYERS is a directory of tar archives, lowest first by name.
"""

import datetime
import gzip
import hashlib
import json
import os
import pathlib
import sys

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MEDIA = "application/vnd.oci.image"


class Layout:
    """The directory of an image."""

    def __init__(self, directory):
        self.root = pathlib.Path(directory)
        self.blobs = self.root / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)

    def add(self, kind, data, **more):
        """Writes a blob and returns its descriptor."""
        name = hashlib.sha256(data).hexdigest()
        (self.blobs / name).write_bytes(data)
        return {"mediaType": f"{MEDIA}.{kind}", "digest": f"sha256:{name}", "size": len(data), **more}

    def add_json(self, kind, value, **more):
        return self.add(kind, json.dumps(value, sort_keys=True).encode(), **more)


def main(layers, version, arch, directory):
    layout = Layout(directory)
    paths = sorted(pathlib.Path(layers).glob("*.tar"))
    contents = [path.read_bytes() for path in paths]
    seconds = int(os.environ["SOURCE_DATE_EPOCH"])
    created = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    created = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    platform = {"os": "linux", "architecture": ARCHITECTURES[arch]}
    config = layout.add_json("config.v1+json", {
        **platform,
        "created": created,
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Cmd": ["roce", "doctor"],
            "Labels": {
                "org.opencontainers.image.title": "softroce",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in contents],
        },
        "history": [{"created": created, "created_by": path.stem} for path in paths],
    })
    zipped = [layout.add("layer.v1.tar+gzip", gzip.compress(data, 6, mtime=0)) for data in contents]
    manifest = layout.add_json("manifest.v1+json", {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": config,
        "layers": zipped,
    }, platform=platform, annotations={"org.opencontainers.image.ref.name": version})
    index = {"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": [manifest]}
    (layout.root / "index.json").write_text(json.dumps(index, sort_keys=True))
    (layout.root / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


if __name__ == "__main__":
    main(*sys.argv[1:])
