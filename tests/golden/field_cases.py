#!/usr/bin/env python3
# limit: 20
"""tests/field_cases.md and the tests agree: every name there is a test, every test named after a case is there."""
import os
import re
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main():
    with open(os.path.join(TESTS, "field_cases.md"), encoding="utf-8") as file:
        text = file.read()
    listed = set(re.findall(r"`(b\d{3}_\w+)`", text))
    files = set(re.findall(r"`([\w/]+\.(?:py|c|h))`", text))
    found, names = set(), set()
    for folder, _, entries in os.walk(TESTS):
        for entry in entries:
            path = os.path.join(folder, entry)
            names.add(os.path.relpath(path, TESTS))
            names.add(entry)
            if entry.endswith((".c", ".py")):
                with open(path, encoding="utf-8") as file:
                    found.update(re.findall(r"(?:cmocka_unit_test\w*|\bTEST)\(\s*(b\d{3}_\w+)|^def (b\d{3}_\w+)", file.read(), re.M))
    found = {name for pair in found for name in pair if name}
    faults = ["%s is listed and no test has the name" % name for name in sorted(listed - found)]
    faults += ["the test %s is not listed" % name for name in sorted(found - listed)]
    faults += ["the file %s is named and not there" % name for name in sorted(files - names) if name != "tests/golden/field_cases.py"]
    faults += ["B%03d is not listed" % number
               for number in range(1, 102)
               if "B%03d" % number not in text]
    print("\n".join(faults + ["%d tests named after cases" % len(found)]))
    return 1 if faults or not found else 0


sys.exit(main())
