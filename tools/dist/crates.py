#!/usr/bin/env python3
"""The crates in the binaries: their licences, or a bill of materials (CycloneDX 1.5).

    crates.py licences    texts, for packages
    crates.py sbom        JSON
"""

import json
import pathlib
import subprocess
import sys

BINARIES = ("softroce-tools", "softroce-capi", "softroce-paths")
# File names of licences and notices, in upper case.
NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE")


def crates():
    """Returns the packages that the binaries contain, without build and test dependencies."""
    command = ["cargo", "metadata", "--format-version=1", "--locked"]
    command += ["--filter-platform", host()]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo = [id for id, package in packages.items() if package["name"] in BINARIES]
    found = set()
    while todo:
        id = todo.pop()
        # A macro runs in the compiler and is in no binary.
        is_macro = all("proc-macro" in target["kind"] for target in packages[id]["targets"]
                       if "custom-build" not in target["kind"] and "lib" in "".join(target["kind"]))
        is_macro &= any("proc-macro" in target["kind"] for target in packages[id]["targets"])
        if id in found or is_macro:
            continue
        found.add(id)
        for dependency in nodes[id]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                todo.append(dependency["pkg"])
    key = lambda package: (package["name"], package["version"])
    return sorted((packages[id] for id in found), key=key)


def host():
    """Returns the target triple of this machine."""
    version = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    return next(line.split()[1] for line in version.splitlines() if line.startswith("host:"))


def licences():
    """Prints each crate with its licence, then each text once with the crates that have it."""
    texts = {}
    foreign = [package for package in crates() if package["source"]]
    print("The programs and libraries contain these crates:\n")
    for package in foreign:
        name = f"{package['name']} {package['version']}"
        print(f"  {name}: {package['license']}")
        folder = pathlib.Path(package["manifest_path"]).parent
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.name.upper().startswith(NAMES):
                text = path.read_text(encoding="utf-8", errors="replace").strip()
                texts.setdefault(text, []).append(name)
    for text, names in texts.items():
        print(f"\n{'-' * 80}\n{', '.join(names)}\n\n{text}")


def sbom():
    """Prints the bill of materials. It has neither a time nor a random serial number."""
    components = []
    for package in crates():
        name, version = package["name"], package["version"]
        components.append({
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:cargo/{name}@{version}",
            "licenses": [{"expression": package["license"].replace("/", " OR ")}],
        })
    main = next(entry for entry in components if entry["name"] == "softroce")
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": dict(main, type="application")},
        "components": [entry for entry in components if entry is not main],
    }
    print(json.dumps(bill, indent=1))


if __name__ == "__main__":
    {"licences": licences, "sbom": sbom}[sys.argv[1]]()
