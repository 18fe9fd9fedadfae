#!/usr/bin/env python3
"""Checks that tests notice mistakes in the protocol: applies the mutations of tests/mutations.toml to a copy of the tree.

    tools/mutations.py                   all of them
    tools/mutations.py RSP-02 REQ-18     those of these statements of docs/COMPLIANCE.md
    tools/mutations.py --list            their numbers, statements and places

Each mutation names the test that must fail with it. Most replace an expression or a statement: one build contains all
of these, each behind a condition, and the variable SOFTROCE_MUTATION selects one at run time. The others, with
`separate = true`, replace a constant or a pattern, and each takes a build of its own. The command fails when a test
passes with its mutation, or fails without one.

The copy and its build are in the folder `mutations` below CARGO_TARGET_DIR, which is `target` by default.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "mutations"
COPY = TARGET / "tree"
SELECTOR = "SOFTROCE_MUTATION"
# A mutation may cause an endless loop.
TEST_TIMEOUT_SECONDS = 60
COPIED = ["benches", "capi", "examples", "fuzz", "pcap", "src", "tests", "tools", "Cargo.toml", "Cargo.lock", "docs",
          "README.md", "rust-toolchain.toml", ".cargo"]

CONDITION = f"""
/// Whether the mutation with this number is selected.
pub fn mutation_is_selected(number: usize) -> bool {{
    static SELECTED: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    let selected = || std::env::var("{SELECTOR}").ok().and_then(|number| number.parse().ok());
    *SELECTED.get_or_init(selected) == Some(number)
}}
"""


@dataclass(frozen=True)
class Mutation:
    """One mistake, and the test that notices it."""

    number: int
    statements: list[str]
    file: str
    # The text before, in, and after the part that is replaced.
    before: str
    old: str
    after: str
    new: str
    test: str
    separate: bool

    def place(self, text):
        """Returns start and end of the replaced part."""
        whole = self.before + self.old + self.after
        if text.count(whole) != 1:
            fail(f"{self}: found {text.count(whole)} places with this text, expected 1:\n{whole}")
        start = text.index(whole) + len(self.before)
        return start, start + len(self.old)

    def behind_condition(self):
        """Returns the text that behaves as the old one unless the mutation is selected."""
        chosen = f"if crate::mutation_is_selected({self.number}) {{ {self.new} }} else {{ {self.old} }}"
        return chosen if self.old.rstrip().endswith((";", "}")) else f"({chosen})"

    def __str__(self):
        return f"mutation {self.number} ({', '.join(self.statements)}, {self.file}, {self.test})"


def fail(message):
    print(f"mutations.py: {message}", file=sys.stderr)
    sys.exit(1)


def mutations():
    """Reads the table."""
    with open(ROOT / "tests/mutations.toml", "rb") as file:
        rows = tomllib.load(file)["mutation"]
    for number, row in enumerate(rows, 1):
        parts = re.split("[«»]", row["old"])
        before, old, after = parts if len(parts) == 3 else ("", row["old"], "")
        yield Mutation(number, row["statements"], row["file"], before, old, after, row["new"], row["test"],
                       row.get("separate", False))


def write_copy(applied, replaced_by):
    """Writes the tree with these mutations. Returns those that overlap with an earlier one."""
    texts, left, ends = {}, [], {}
    for mutation in applied:
        places = ends.setdefault(mutation.file, [])
        start, end = mutation.place((ROOT / mutation.file).read_text())
        if any(start < other_end and other_start < end for other_start, other_end, _ in places):
            left.append(mutation)
        else:
            places.append((start, end, replaced_by(mutation)))
    for file, places in ends.items():
        text = (ROOT / file).read_text()
        for start, end, new in sorted(places, reverse=True):
            text = text[:start] + new + text[end:]
        texts[file] = text
    texts["src/lib.rs"] = texts.get("src/lib.rs", (ROOT / "src/lib.rs").read_text()) + CONDITION
    for name in COPIED:
        copy_changed(ROOT / name, COPY / name, texts)
    return left


def copy_changed(source, destination, texts):
    """Copies a file or folder, with the texts of some files. What has not changed keeps its time, for cargo."""
    if source.is_dir():
        destination.mkdir(parents=True, exist_ok=True)
        for entry in destination.iterdir():
            if not (source / entry.name).exists():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for entry in source.iterdir():
            if entry.name not in ("target", "__pycache__"):
                copy_changed(entry, destination / entry.name, texts)
    elif source.exists():
        text = texts.get(str(source.relative_to(ROOT)))
        content = source.read_bytes() if text is None else text.encode()
        if not destination.exists() or destination.read_bytes() != content:
            destination.write_bytes(content)


def build(tests):
    """Builds the programs of these tests. Returns the program of each."""
    options = []
    for program in sorted({program_of(test) for test in tests}):
        options += ["--lib"] if program == "lib" else ["--test", program]
    command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", "--package", "softroce"] + options
    environment = os.environ | {"CARGO_TARGET_DIR": str(TARGET / "build"), "CARGO_PROFILE_DEV_DEBUG": "0",
                                "RUSTFLAGS": "--allow warnings"}
    built = subprocess.run(command, cwd=COPY, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        fail("the mutated tree does not compile")
    programs = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            is_library = "lib" in message["target"]["kind"]
            programs["lib" if is_library else message["target"]["name"]] = message["executable"]
    return programs


def program_of(test):
    """Returns the file in `tests` of a test, or `lib`."""
    first = test.split("::")[0]
    return first if (ROOT / f"tests/{first}.rs").exists() else "lib"


def named(program, test):
    """Returns the name of a test as its program lists it."""
    path = test if program_of(test) == "lib" else test.split("::", 1)[1]
    module, _, name = path.rpartition("::")
    listed = subprocess.run([program, "--list", "--format=terse"], stdout=subprocess.PIPE, text=True, check=True)
    names = [line.removesuffix(": test") for line in listed.stdout.splitlines()]
    found = [full for full in names if full.startswith(module) and full.rpartition("::")[2] == name]
    if len(found) != 1:
        fail(f"found {len(found)} tests {test}, expected 1")
    return found[0]


def passes(program, test, number):
    """Returns whether a test passes with a mutation; 0 is none."""
    environment = os.environ | {SELECTOR: str(number), "CARGO_MANIFEST_DIR": str(COPY)}
    try:
        ran = subprocess.run([program, "--exact", named(program, test)], cwd=COPY, env=environment,
                             timeout=TEST_TIMEOUT_SECONDS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             check=False)
    except subprocess.TimeoutExpired:
        return False
    return ran.returncode == 0


def check(applied, programs, number_of):
    """Runs the test of each mutation. Returns the mutations that it does not notice."""
    missed = []
    for mutation in applied:
        program = programs[program_of(mutation.test)]
        caught = not passes(program, mutation.test, number_of(mutation))
        print(f"{'caught' if caught else 'MISSED'}  {mutation}", flush=True)
        if not caught:
            missed.append(mutation)
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("statement", nargs="*", help="statements of docs/COMPLIANCE.md, or numbers of mutations")
    parser.add_argument("--list", action="store_true", help="print the mutations and apply none")
    parser.add_argument("--together", action="store_true", help="leave out those with a build of their own")
    arguments = parser.parse_args()
    chosen = [mutation for mutation in mutations() if not arguments.statement
              or set(arguments.statement) & {str(mutation.number), *mutation.statements}]
    if arguments.together:
        chosen = [mutation for mutation in chosen if not mutation.separate]
    if not chosen:
        fail(f"found no mutation of {', '.join(arguments.statement)}")
    if arguments.list:
        print(*chosen, sep="\n")
        return
    missed, left = [], [mutation for mutation in chosen if not mutation.separate]
    while left:
        batch = left
        left = write_copy(batch, Mutation.behind_condition)
        batch = [mutation for mutation in batch if mutation not in left]
        programs = build([mutation.test for mutation in batch])
        for test in sorted({mutation.test for mutation in batch}):
            if not passes(programs[program_of(test)], test, 0):
                fail(f"{test} fails without a mutation")
        missed += check(batch, programs, lambda mutation: mutation.number)
    for mutation in [mutation for mutation in chosen if mutation.separate]:
        write_copy([mutation], lambda mutation: mutation.new)
        missed += check([mutation], build([mutation.test]), lambda mutation: 0)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} mutations are caught")
    if missed:
        fail("these are not:\n" + "\n".join(map(str, missed)))


if __name__ == "__main__":
    main()
