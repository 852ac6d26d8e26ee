"""Runs one test in a process group of its own, with a time limit, its output in a file.

A test may start processes in groups of their own; they carry the test's mark in their environment, and
whatever is left of them when the test ends is killed as well.
"""
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

MARK = "PENSTOCK_TEST_MARK"
LOG_SHOWN = 64 * 1024  # bytes of a failing test's log, from its end


class Result:
    def __init__(self, test, outcome, seconds, log, reason=""):
        self.test = test
        self.outcome = outcome  # "passed", "failed" or "skipped"
        self.seconds = seconds
        self.log = log
        self.reason = reason


class Runner:
    """Starts tests and knows which groups are alive, so that Ctrl-C leaves nothing behind."""

    def __init__(self, environment, root):
        self.environment = environment
        self.root = root
        self.running = {}  # process group: mark
        self.lock = threading.Lock()
        self.stopping = False

    def stop_all(self):
        with self.lock:
            self.stopping = True
            for group, mark in self.running.items():
                kill_group(group)
                kill_marked(mark)

    def run(self, test):
        scratch = tempfile.mkdtemp(prefix="penstock-test-")
        try:
            return self._run_in(test, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _run_in(self, test, scratch):
        log_path = os.path.join(scratch, "log")
        temporary = os.path.join(scratch, "tmp")
        os.mkdir(temporary)
        environment = dict(self.environment, TMPDIR=temporary, **{MARK: scratch})
        command = [part.format(scratch=temporary) if part == "{scratch}" else part
                   for part in test.command]
        start = time.monotonic()
        with open(log_path, "wb") as log:
            try:
                with self.lock:
                    if self.stopping:
                        return Result(test, "failed", 0, "", "interrupted")
                    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                               stderr=subprocess.STDOUT, cwd=self.root,
                                               env=environment, start_new_session=True)
                    self.running[process.pid] = scratch
            except OSError as failure:
                return Result(test, "failed", 0, "", "it could not be started: %s" % failure)
            reason = ""
            try:
                process.wait(test.limit)
            except subprocess.TimeoutExpired:
                reason = "it ran past its limit of %d s" % test.limit
                os.killpg(process.pid, signal.SIGINT)  # a chance to say where it was
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    pass
            kill_group(process.pid)
            kill_marked(scratch)
            process.wait()
            with self.lock:
                del self.running[process.pid]
        return self._judge(test, process.returncode, reason, time.monotonic() - start, log_path)

    @staticmethod
    def _judge(test, status, reason, seconds, log_path):
        with open(log_path, "rb") as file:
            file.seek(max(0, os.path.getsize(log_path) - LOG_SHOWN))
            log = file.read().decode("utf-8", "replace")
        if reason:
            return Result(test, "failed", seconds, log, reason)
        if status == 0:
            return Result(test, "passed", seconds, log)
        if status == 77:
            lines = [line.strip() for line in log.splitlines() if line.strip()]
            said = [line for line in lines if line.startswith("skipped")] or lines[-1:]
            why = said[0].removeprefix("skipped").lstrip(": ") if said else "it gave no reason"
            return Result(test, "skipped", seconds, log, why)
        how = "exit status %d" % status
        if status < 0:
            how = "killed by %s" % signal.Signals(-status).name
        return Result(test, "failed", seconds, log, how)


def kill_group(group):
    """Kill what is left of a test: its children that outlived it as well."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def kill_marked(mark):
    """Kill the processes whose environment has the mark."""
    wanted = ("%s=%s" % (MARK, mark)).encode()
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit():
                with open("/proc/%s/environ" % entry, "rb") as file:
                    if wanted in file.read().split(b"\0"):
                        os.kill(int(entry), signal.SIGKILL)
        except OSError:  # it ended meanwhile, or belongs to somebody else
            pass
