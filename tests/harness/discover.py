"""Finds the tests of the tree: what each is called, how it is started, its tags and its time limit.

A test's source may declare, in comments among its first 30 lines, `tags: integration slow` and
`limit: 120` (seconds, on a plain build). The tag `slow` leaves a test out of --quick; `plain` leaves it out
under sanitizers (it measures, compares numbers that they cannot change, or looks at what runs in a browser: other
tests ask the same routes for it).
"""
import os
import re
import subprocess

MODULES = ("base checkpoint text compute kv model net handoff worker router prefill_worker "
           "decode_worker eval").split()
THREADED = set("base net handoff worker router compute model prefill_worker decode_worker".split())
SCRIPT_FOLDERS = ("layering", "golden", "integration", "chaos", "simulation")
# A sanitizer slows a program down by about this much.
SLOWER = {None: 1, "address": 4, "thread": 10}


class Test:
    """One process: exit status 0 passed, 77 skipped, else failed."""

    def __init__(self, name, command, source, tags, limit, alone):
        self.name = name
        self.command = command
        self.source = source
        self.tags = set(tags)
        self.limit = limit
        self.alone = alone  # starts clusters or measures: nothing else runs beside it
        self._read_declarations()

    def _read_declarations(self):
        try:
            with open(self.source, encoding="utf-8", errors="replace") as file:
                head = [line for _, line in zip(range(30), file)]
        except (OSError, TypeError):
            return
        for line in head:
            found = re.match(r"\s*(?:#|//)\s*(tags|limit):\s*(.+)", line)
            if found and found.group(1) == "tags":
                self.tags.update(found.group(2).split())
            elif found and re.match(r"\d+\s*$", found.group(2)):
                self.limit = int(found.group(2))


def built_programs(build):
    """The programs under build/tests/ that the build knows (a stale file there is no test)."""
    listing = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], check=True,
                             capture_output=True, text=True).stdout
    found = re.findall(r"^tests/([^/:]+): C_EXECUTABLE_LINKER", listing, re.M)
    return sorted(set(found))


def unit_tests(root, build):
    tests = []
    for program in built_programs(build):
        module, _, name = program.partition("-")
        # A suite may be built a second time, for a level that this machine must emulate.
        file = "test_" + name.removeprefix("emulated-").replace("-", "_") + ".c"
        sources = [os.path.join(root, "tests", folder, file)
                   for folder in ("unit/" + module, "backends", module)]
        source = next((path for path in sources if os.path.exists(path)), None)
        tags = {"unit", module} if module in MODULES else {module}
        tests.append(Test(program, [os.path.join(build, "tests", program)], source, tags, 60, False))
    return tests


def scripts(root):
    tests = []
    for folder in SCRIPT_FOLDERS:
        path = os.path.join(root, "tests", folder)
        for entry in sorted(os.listdir(path)) if os.path.isdir(path) else []:
            stem, extension = os.path.splitext(entry)
            full = os.path.join(path, entry)
            runnable = os.path.isfile(full) and os.access(full, os.X_OK)
            if not runnable or (extension not in (".py", ".sh") and entry != "run"):
                continue
            name = folder if entry == "run" else folder + "-" + stem.replace("_", "-")
            tests.append(Test(name, [full], full, {folder}, 120, True))
    return tests


def fuzz_targets(root, fuzz_build, seconds, seed):
    """Each replays its seeds, then looks for a few seconds for an input that does harm."""
    tests = []
    folder = os.path.join(root, "tests", "fuzz")
    for entry in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        found = re.match(r"fuzz_(\w+)\.c$", entry)
        if not found:
            continue
        target = found.group(1)
        crashes = os.path.join(fuzz_build, "crashes", target + "-")
        # A crash must not look like a skipped test: libFuzzer's own exit status for it is 77.
        command = [os.path.join(fuzz_build, "fuzz", "fuzz-" + target.replace("_", "-")),
                   "-error_exitcode=1", "-timeout_exitcode=1", "-timeout=10",
                   "-rss_limit_mb=2048", "-verbosity=0", "-max_total_time=%d" % seconds,
                   "-seed=%d" % (seed % 2**31 + 1), "-artifact_prefix=" + crashes, "{scratch}"]
        seeds = os.path.join(folder, "seeds", target)
        if os.path.isdir(seeds):
            command.append(seeds)
        tests.append(Test("fuzz-" + target.replace("_", "-"), command, os.path.join(folder, entry),
                          {"fuzz"}, seconds + 60, False))
    return tests


def all_tests(root, build, fuzz_build, sanitizer, fuzz_seconds, seed):
    tests = unit_tests(root, build)
    if sanitizer == "thread":
        tests = [test for test in tests if test.tags & THREADED]
    if sanitizer is None:
        tests += fuzz_targets(root, fuzz_build, fuzz_seconds, seed)
    # The text of the tree is the same whatever the build; scripts start programs without threads of their own.
    left_out = {None: set(), "address": {"layering"}, "thread": {"layering", "golden", "integration", "chaos"}}
    tests += [test for test in scripts(root) if not test.tags & left_out[sanitizer]]
    if sanitizer is not None:
        tests = [test for test in tests if "plain" not in test.tags]
    for test in tests:
        if "fuzz" not in test.tags:
            test.limit *= SLOWER[sanitizer]
    return tests
