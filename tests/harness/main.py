"""The runner behind tests/run: builds, chooses tests, runs them, and counts."""
import argparse
import concurrent.futures
import fnmatch
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time

import discover
import processes
import sanitizers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tests/run", description="Build Penstock and run its tests, each in its own process.")
    parser.add_argument("--list", action="store_true", help="print names, tags and time limits")
    parser.add_argument("--name", action="append", metavar="GLOB", default=[],
                        help="only tests whose name matches (repeatable)")
    parser.add_argument("--tag", action="append", default=[],
                        help="only tests with this tag (repeatable: any of them); tests tagged models "
                             "run only where this or their very --name asks for them, and fetch 0.7 GB; "
                             "those tagged browser need chromium, which only --tag browser installs; those "
                             "tagged heavy install much and run only where some tag or name is asked for")
    parser.add_argument("--seed", type=int, help="of random tests; PENSTOCK_SEED (default: random)")
    parser.add_argument("--sanitize", choices=("address", "thread"),
                        help="address: with undefined; thread: the threaded modules only")
    parser.add_argument("--quick", action="store_true", help="leave out tests tagged slow")
    parser.add_argument("--quiet", action="store_true", help="print failures and the count only")
    parser.add_argument("--no-install", action="store_true", help="install no Debian packages")
    parser.add_argument("--build-dir", help="default: build, build-asan or build-tsan")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1,
                        help="programs that run at once (tests that start clusters run alone)")
    parser.add_argument("--fuzz-seconds", type=int, default=5, help="for each fuzz target")
    return parser.parse_args()


def say(*words):
    print(*words, flush=True)


def run_quietly(what, command, quiet):
    """Run a step of the build; on a terminal it shows itself, in a log only its failure does."""
    start = time.monotonic()
    shown = sys.stdout.isatty() and not quiet
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, text=True, errors="replace",
                          stdout=None if shown else subprocess.PIPE,
                          stderr=None if shown else subprocess.STDOUT, check=False)
    if done.returncode != 0:
        say((done.stdout or "")[-processes.LOG_SHOWN:])
        say("%s failed: %s" % (what, shlex.join(command)))
    elif not quiet:
        say("%s: %.0f s" % (what, time.monotonic() - start))
    return done.returncode == 0


def configure(build, options, quiet, environment=()):
    command = ["env", *environment, "cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *options]
    return run_quietly("configuring " + os.path.relpath(build, ROOT), command, quiet)


def build_targets(build, targets, quiet):
    command = ["ninja", "-C", build, "-j", str(os.cpu_count() or 1), *targets]
    return run_quietly("building " + os.path.relpath(build, ROOT), command, quiet)


def fetch(*script, arguments=()):
    """What a fetching script prints (a path), or None: tests that need it then skip themselves."""
    done = subprocess.run([os.path.join(ROOT, *script), *arguments], check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def fetch_models(tests):
    """The models beyond the default one, into the cache where the tests look for them."""
    if any("models" in test.tags for test in tests):
        for name in ("gemma3-270m", "qwen2.5-coder-0.5b"):
            fetch("deploy", "model", "fetch.sh", arguments=[name])


def test_environment(build, seed):
    model = fetch("deploy", "model", "fetch.sh")
    promtool = fetch("tests", "harness", "promtool.sh")
    environment = dict(os.environ, PENSTOCK_BUILD_DIR=build, PENSTOCK_SOURCE_DIR=ROOT,
                       PENSTOCK_SEED=str(seed), PYTHONDONTWRITEBYTECODE="1",
                       PYTHONUNBUFFERED="1")
    sanitizers.set_options(environment)
    if model:
        environment["PENSTOCK_MODEL"] = model
    else:
        environment.pop("PENSTOCK_MODEL", None)
    if promtool:
        environment["PATH"] += os.pathsep + os.path.dirname(promtool)
    return environment


def choose(tests, arguments):
    chosen = tests
    if arguments.name:
        chosen = [test for test in chosen
                  if any(fnmatch.fnmatch(test.name, glob) for glob in arguments.name)]
    if arguments.tag:
        chosen = [test for test in chosen if test.tags & set(arguments.tag)]
    if not arguments.tag and not arguments.name:
        chosen = [test for test in chosen if "heavy" not in test.tags]
    if "models" not in arguments.tag:
        chosen = [test for test in chosen
                  if "models" not in test.tags or test.name in arguments.name]
    if arguments.quick:
        chosen = [test for test in chosen if "slow" not in test.tags]
    return chosen


def report(result, arguments, seed):
    test = result.test
    if result.outcome == "failed":
        replay = ["tests/run", "--name", test.name, "--seed", str(seed)]
        if arguments.sanitize:
            replay += ["--sanitize", arguments.sanitize]
        say("---- log of %s" % test.name)
        say(result.log.rstrip("\n"))
        say("---- end of the log")
        say("FAILED   %-40s %6.1f s  %s" % (test.name, result.seconds, result.reason))
        say("         again: " + shlex.join(replay))
    elif not arguments.quiet:
        line = "%-8s %-40s %6.1f s  %s" % (result.outcome, test.name, result.seconds, result.reason)
        say(line.rstrip())


def run_tests(tests, runner, arguments, seed):
    results = []

    def keep(result):
        results.append(result)
        report(result, arguments, seed)

    try:
        with concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
            try:
                together = [pool.submit(runner.run, test) for test in tests if not test.alone]
                for future in concurrent.futures.as_completed(together):
                    keep(future.result())
            except KeyboardInterrupt:
                runner.stop_all()
                raise
        for test in tests:
            if test.alone:
                keep(runner.run(test))
    except KeyboardInterrupt:
        runner.stop_all()
        say("interrupted")
    return results


def finish(passed, failed, skipped):
    say("%d passed, %d failed%s" % (passed, failed, ", %d skipped" % skipped if skipped else ""))
    return 1 if failed or passed == 0 else 0


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the tests as Ctrl-C does
    build = os.path.abspath(arguments.build_dir or os.path.join(ROOT, sanitizers.FOLDERS[arguments.sanitize]))
    fuzz_build = os.path.join(ROOT, "build-fuzz")
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(2**31)
    quiet = arguments.quiet or arguments.list
    options = ["-DPENSTOCK_SANITIZE=" + (arguments.sanitize or "")]
    if not configure(build, options, quiet):
        return finish(0, 1, 0)
    everything = discover.all_tests(ROOT, build, fuzz_build, arguments.sanitize,
                                    arguments.fuzz_seconds, seed)
    tests = choose(everything, arguments)
    if arguments.list:
        for test in tests:
            say("%-40s %5d s  %s" % (test.name, test.limit, " ".join(sorted(test.tags))))
        return 0
    if not tests:
        say("no test has that name or tag; --list shows them")
        return finish(0, 0, 0)
    say("seed %d" % seed)
    if not build_targets(build, ["all"], quiet):
        return finish(0, 1, 0)
    if any("fuzz" in test.tags for test in tests):
        os.makedirs(os.path.join(fuzz_build, "crashes"), exist_ok=True)
        if not configure(fuzz_build, ["-DPENSTOCK_FUZZ=ON"], quiet, ["CC=clang"]) or \
                not build_targets(fuzz_build, ["fuzz"], quiet):
            return finish(0, 1, 0)
    fetch_models(tests)
    runner = processes.Runner(test_environment(build, seed), ROOT)
    results = run_tests(tests, runner, arguments, seed)
    counts = [sum(result.outcome == outcome for result in results)
              for outcome in ("passed", "failed", "skipped")]
    counts[1] += len(tests) - len(results)  # not run: interrupted
    for result in results:
        if result.outcome == "failed":
            say("FAILED   %s: %s" % (result.test.name, result.reason))
    return finish(*counts)


if __name__ == "__main__":
    sys.exit(main())
