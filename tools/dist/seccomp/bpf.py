#!/usr/bin/env python3
"""Prints a seccomp profile of a container runtime as a BPF program, for a container without capabilities.

    bpf.py PROFILE.json >PROFILE.bpf

Needs python3-seccomp.
"""

import json
import os
import sys

import seccomp

OPERATORS = {
    "SCMP_CMP_NE": seccomp.NE,
    "SCMP_CMP_LT": seccomp.LT,
    "SCMP_CMP_LE": seccomp.LE,
    "SCMP_CMP_EQ": seccomp.EQ,
    "SCMP_CMP_GE": seccomp.GE,
    "SCMP_CMP_GT": seccomp.GT,
}


def action(name, errno):
    """Returns an action of libseccomp."""
    return seccomp.ALLOW if name == "SCMP_ACT_ALLOW" else seccomp.ERRNO(errno)


def comparison(entry):
    """Returns a comparison of an argument."""
    if entry["op"] == "SCMP_CMP_MASKED_EQ":
        return seccomp.Arg(entry["index"], seccomp.MASKED_EQ, entry["value"], entry.get("valueTwo", 0))
    return seccomp.Arg(entry["index"], OPERATORS[entry["op"]], entry["value"])


def is_for_us(rule):
    """Returns whether a rule holds for this architecture without capabilities."""
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    if includes.get("caps") or architecture not in includes.get("arches", [architecture]):
        return False
    return architecture not in excludes.get("arches", [])


def main(path):
    with open(path, encoding="utf-8") as file:
        profile = json.load(file)
    default = action(profile["defaultAction"], profile.get("defaultErrnoRet", 1))
    program = seccomp.SyscallFilter(default)
    for rule in filter(is_for_us, profile["syscalls"]):
        result = action(rule["action"], rule.get("errnoRet", 1))
        if rule["action"] == profile["defaultAction"] and result == default:
            continue
        for name in rule["names"]:
            # A call that this version of libseccomp or this architecture does not have.
            if seccomp.resolve_syscall(seccomp.Arch(), name) < 0:
                continue
            program.add_rule(result, name, *map(comparison, rule.get("args") or []))
    program.export_bpf(sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
