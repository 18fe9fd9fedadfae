"""Runs tests of rdma-core, those that are named: rdma_core.py DEVICE GID-INDEX DIRECTORY MODULE...

They are in DIRECTORY/tests. Each begins with a line that names it, and ends with one: how, which test and, of those
that were skipped, why.
"""

import os
import sys
import unittest

device, gid, directory, *modules = sys.argv[1:]
sys.path[:0] = [directory, os.path.join(directory, "tests")]
# It is the tests' own, and reads the command line.
sys.argv[1:] = ["--dev", device, "--gid", gid]
from args_parser import parser

parser.parse_args()
import tests


class Told(unittest.TestResult):
    def tell(self, how, test, why=""):
        print("\t".join(["ended", how, test.id().removeprefix("tests."), why]), flush=True)

    def startTest(self, test):
        super().startTest(test)
        print("\t".join(["begun", test.id().removeprefix("tests.")]), flush=True)

    def addSuccess(self, test):
        self.tell("ok", test)

    def addSkip(self, test, reason):
        self.tell("skipped", test, reason)

    def failed(self, test, error):
        print(self._exc_info_to_string(error, test))
        self.tell("failed", test)

    addFailure = addError = failed


loader = unittest.defaultTestLoader
suite = loader.loadTestsFromNames([f"test_{module}" for module in modules], tests)
suite.run(Told())
