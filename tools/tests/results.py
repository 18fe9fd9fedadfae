#!/usr/bin/env python3
"""Tests of tools/benchmark.py: what a benchmark writes into docs/results.json."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import benchmark

MACHINE, KERNEL = "2 CPUs", "Linux 6.18"


class Publish(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        benchmark.RESULTS = Path(self.folder.name) / "results.json"
        benchmark.RESULTS.write_text("{}")
        self.publish(["--rounds", "5"], 5, {"a": 1.0, "b": 2.0, "c": 3.0})

    def publish(self, words, rounds, figures, digits=1, kernel=KERNEL):
        sys.argv = ["tools/bench-some.py", "--publish", *words]
        table = benchmark.Table(("Gbit/s", digits))
        for name, figure in figures.items():
            table.add(name, figure)
        benchmark.publish({"some": table}, rounds, MACHINE, kernel)

    def found(self):
        entry = json.loads(benchmark.RESULTS.read_text())["some"]
        return {row["name"]: row["values"][0] for row in entry["rows"]}, entry["command"], entry["rounds"]

    def test_rows_that_were_not_measured_stay_in_their_order(self):
        self.publish(["--only", "b"], 3, {"b": 7.0})
        rows, *how = self.found()
        self.assertEqual(list(rows.items()), [("a", 1.0), ("b", 7.0), ("c", 3.0)])
        self.assertEqual(how, ["tools/bench-some.py --rounds 5", 3])

    def test_new_rows_follow(self):
        self.publish(["--only=d"], 7, {"d": 4.0})
        rows, *how = self.found()
        self.assertEqual(list(rows), ["a", "b", "c", "d"])
        self.assertEqual(how, ["tools/bench-some.py --rounds 5", 5])

    def test_measurement_of_all_rows_replaces_the_table(self):
        self.publish(["--only", ""], 3, {"c": 1.0, "b": 2.0, "a": 3.0})
        self.assertEqual(self.found(), ({"c": 1.0, "b": 2.0, "a": 3.0}, "tools/bench-some.py --only ''", 3))
        self.publish([], 5, {"a": 9.0})
        self.assertEqual(self.found(), ({"a": 9.0}, "tools/bench-some.py", 5))

    def test_rows_of_another_table_or_machine_are_not_mixed(self):
        before = benchmark.RESULTS.read_text()
        for more in ({"digits": 2}, {"kernel": "Linux 6.12"}):
            with self.assertRaises(SystemExit):
                self.publish(["--only", "b"], 3, {"b": 7.0}, **more)
        self.assertEqual(benchmark.RESULTS.read_text(), before)


if __name__ == "__main__":
    unittest.main()
