"""The second half of up.sh: starts the cluster's processes, asks one question, and stops them again."""
import argparse
import ctypes
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time

import ask

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HOST = "127.0.0.1"
READY_SECONDS = 300
STOP_SECONDS = 20
PR_SET_PDEATHSIG = 1


class Trouble(Exception):
    """One sentence for the person at the terminal."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def progress(text, end=False):
    """A line that is redrawn in place on a terminal; in a log only its end is printed."""
    if sys.stderr.isatty():
        print("\r\033[K" + text, end="\n" if end else "", file=sys.stderr, flush=True)
    elif end:
        say(text)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="up.sh")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--question", default=ask.QUESTION)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prefill", type=int, default=1)
    parser.add_argument("--decode", type=int, default=1)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--build-dir", required=True)
    return parser.parse_args()


def check_port(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as failure:
            raise Trouble("Port %d cannot be used (%s). Choose another with --port." %
                          (port, failure.strerror.lower())) from None


def free_port():
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def die_with_parent():
    """However this script ends, its processes end with it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def config_path(role):
    return os.path.join(ROOT, "deploy", "config", role + ".cfg")


class Cluster:
    def __init__(self, arguments):
        self.arguments = arguments
        self.folder = os.path.join(ROOT, "run", str(arguments.port))
        self.control = "tcp://%s:%d" % (HOST, free_port())
        self.processes = []  # (name, process), in the order of their start

    def start(self, name, role, settings):
        program = os.path.join(self.arguments.build_dir, "bin", "penstock-" + role)
        command = [program, "--config", config_path(role)]
        if role != "router":
            settings = settings + ["worker.%s_config=%s" % (r, config_path(r)) for r in ("prefill", "decode")]
        for setting in settings:
            command += ["--set", setting]
        with open(self.log_path(name), "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       start_new_session=True, preexec_fn=die_with_parent)
        self.processes.append((name, process))

    def log_path(self, name):
        return os.path.join(self.folder, name + ".log")

    def start_all(self):
        os.makedirs(self.folder, exist_ok=True)
        model = os.path.abspath(self.arguments.model)
        self.start("router", "router", [
            "http.listen=%s:%d" % (HOST, self.arguments.port), "control.listen=" + self.control,
            "router.model=" + model])
        alone = self.arguments.prefill + self.arguments.decode == 1
        for role in ("prefill", "decode"):
            for number in range(1, getattr(self.arguments, role) + 1):
                name = "%s-%d" % (role, number)
                self.start(name, role, ["engine.model=" + model, "worker.name=" + name,
                                        "worker.cores=" + ("all" if alone else "auto"),
                                        "worker.run_folder=" + os.path.join(ROOT, "run"),
                                        "worker.routers=" + self.control,
                                        "worker.host=" + HOST, "fabric.host=" + HOST])

    def check_alive(self):
        for name, process in self.processes:
            if process.poll() is not None:
                with open(self.log_path(name), encoding="utf-8", errors="replace") as log:
                    lines = log.read().splitlines()[-15:]
                raise Trouble("%s ended with status %d. Its last lines (all are in %s):\n  %s" % (
                    name, process.returncode, self.log_path(name), "\n  ".join(lines)))

    def workers_ready(self):
        """None when every worker has joined and the router serves; else what is awaited."""
        try:
            ready, body = ask.get(self.arguments.port, "/ready")
            status, state = ask.get_json(self.arguments.port, "/cluster")
        except (OSError, http.client.HTTPException, ValueError):
            return "the router"
        joined = len(state.get("workers", [])) if status == 200 else 0
        wanted = self.arguments.prefill + self.arguments.decode
        if joined < wanted:
            return "workers: %d of %d have joined" % (joined, wanted)
        return None if ready == 200 else body.strip()[:100] or "the router"

    def wait_ready(self):
        start = time.monotonic()
        while True:
            self.check_alive()
            seconds = time.monotonic() - start
            awaited = self.workers_ready()
            if awaited is None:
                break
            if seconds > READY_SECONDS:
                raise Trouble("The cluster was not ready within %d s (%s). The logs are in %s." % (
                    READY_SECONDS, awaited, self.folder))
            progress("waiting for %s (%.0f s)" % (awaited, seconds))
            time.sleep(0.1)
        progress("the cluster is ready after %.1f s: router, %s" % (
            seconds, ", ".join(name for name, _ in self.processes[1:])), end=True)

    def stop(self):
        """SIGTERM to all, workers first, then SIGKILL to what is left; True when all ended cleanly."""
        for _, process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + STOP_SECONDS
        clean = True
        for name, process in self.processes:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                say("%s did not stop within %d s and is killed" % (name, STOP_SECONDS))
                process.kill()
                process.wait()
            if process.returncode != 0:
                say("%s ended with status %d; its log is %s" % (
                    name, process.returncode, self.log_path(name)))
                clean = False
        return clean


def size_in_bytes(text):
    found = re.match(r"(\d+)(B|KiB|MiB|GiB|TiB)?$", text)
    scale = {None: 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[found.group(2)]
    return int(found.group(1)) << scale


def memory_available():
    """Bytes that this machine, and the cgroup of this process, still have."""
    available = []
    with open("/proc/meminfo", encoding="ascii") as file:
        available.append(int(re.search(r"MemAvailable:\s+(\d+) kB", file.read()).group(1)) << 10)
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as limit, \
                open("/sys/fs/cgroup/memory.current", encoding="ascii") as used:
            available.append(int(limit.read()) - int(used.read()))
    except (OSError, ValueError):  # no limit, or no such group
        pass
    return min(available)


def check_memory(arguments):
    """Each worker holds the weights once more in its own order, and a pool of KV pages."""
    needed = os.path.getsize(arguments.model)
    for role in ("prefill", "decode"):
        program = os.path.join(arguments.build_dir, "bin", "penstock-" + role)
        config = config_path(role)
        printed = subprocess.run([program, "--config", config, "--print-config"], check=False,
                                 capture_output=True, text=True)
        if printed.returncode != 0:
            raise Trouble("%s is not valid: %s" % (config, printed.stderr.strip()))
        pool = re.search(r'\bkv_bytes = "([^"]+)"', printed.stdout)
        each = os.path.getsize(arguments.model) + (size_in_bytes(pool.group(1)) if pool else 0)
        needed += getattr(arguments, role) * each
    available = memory_available()
    if needed > available:
        raise Trouble("Memory is short: %d workers need about %d MiB and %d MiB are available. Start fewer "
                      "workers, or lower engine.kv_bytes in deploy/config/." % (
                          arguments.prefill + arguments.decode, needed >> 20, available >> 20))


def stay_up(cluster):
    port = cluster.arguments.port
    say("\nThe API listens on http://%s:%d (the page at / shows the cluster; logs are in %s)." % (
        HOST, port, os.path.relpath(cluster.folder)))
    say("Ask the next question from another terminal:\n")
    say("  curl -N http://%s:%d/v1/chat/completions -H 'Content-Type: application/json' \\\n"
        "    -d '{\"model\": \"%s\", \"stream\": true,\n"
        "         \"messages\": [{\"role\": \"user\", \"content\": \"Name three rivers.\"}]}'\n" % (
            HOST, port, ask.model_name(port)))
    router = "" if port == 8080 else " --router http://%s:%d" % (HOST, port)
    say("or talk to it: build/bin/penstock chat%s; watch it: build/bin/penstock status%s" % (router, router))
    say("Ctrl-C stops everything.")
    while True:
        cluster.check_alive()
        time.sleep(0.5)


def stop_on_signal(number, frame):
    raise KeyboardInterrupt


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, stop_on_signal)
    signal.signal(signal.SIGINT, stop_on_signal)
    cluster = Cluster(arguments)
    status = 1
    try:
        check_port(arguments.port)
        check_memory(arguments)
        cluster.start_all()
        cluster.wait_ready()
        complete = ask.ask(arguments.port, arguments.question)
        status = 0 if complete else 1
        if not arguments.once:
            stay_up(cluster)
    except KeyboardInterrupt:
        say("\nstopping")
        status = 130 if arguments.once else 0
    except (Trouble, ask.Failure) as trouble:
        progress("")
        say("up.sh: %s" % trouble)
        status = 1
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # a second Ctrl-C does not leave processes behind
            signal.signal(number, signal.SIG_IGN)
        if not cluster.stop():
            status = status or 1
    return status


if __name__ == "__main__":
    sys.exit(main())
