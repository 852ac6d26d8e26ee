"""A whole cluster of real processes on loopback, for integration tests (standard library only).

    with Cluster(prefill=2, decode=2) as cluster:
        answer = cluster.chat([{"role": "user", "content": "Hello"}], max_tokens=8)

Environment: PENSTOCK_BUILD_DIR (default: build), PENSTOCK_MODEL (the model file; without it a test ends with 77 = skipped).
Every process runs in a process group of its own, logs to a file, and is killed with the cluster. A process that died by itself, or a
sanitizer report, fails the test.
"""
import atexit
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = os.environ.get("PENSTOCK_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(SOURCE, os.environ.get("PENSTOCK_BUILD_DIR", "build"))
MODEL = os.environ.get("PENSTOCK_MODEL", "")
SLOW = 8.0 if "asan" in BUILD or "tsan" in BUILD else 1.0  # sanitizers make everything slower
if "tsan" in BUILD:
    os.environ.setdefault("UCX_MEM_EVENTS", "n")  # UCX's memory hooks crash in a thread that ThreadSanitizer has left


def skip(reason):
    print("skipped: " + reason)
    sys.exit(77)


def need_model():
    if not MODEL or not os.path.exists(MODEL):
        skip("no model file (set PENSTOCK_MODEL)")
    return MODEL


GIVEN = set()  # ports that this process was told are free: it may not have bound them yet


def free_port(host="127.0.0.1"):
    """A port that nobody uses now, that was not given before, and, where the kernel's range for outgoing connections begins above it,
    that none of them is given."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        end = max(int(f.read().split()[0]), 11000)
    for _ in range(100):
        port = random.SystemRandom().randrange(10000, end)
        if port in GIVEN:
            continue
        with socket.socket() as s:
            try:
                s.bind((host, port))
                GIVEN.add(port)
                return port
            except OSError:
                continue
    raise Failure(f"no free port between 10000 and {end} at {host} in 100 tries")


class Failure(Exception):
    pass


def check(condition, text):
    if not condition:
        raise Failure(text)


class Process:
    def __init__(self, name, command, folder, environment=None, prefix=()):
        self.name = name
        self.log_path = os.path.join(folder, name + ".log")
        self.log = open(self.log_path, "wb")
        self.expected_death = False
        self.popen = subprocess.Popen(
            list(prefix) + command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            start_new_session=True, env=dict(os.environ, **(environment or {})))

    def alive(self):
        return self.popen.poll() is None

    def text(self):
        with open(self.log_path, "rb") as f:
            return f.read().decode("utf-8", "replace")

    def last_words(self):
        return f"{self.name} ended by itself with {self.popen.returncode}:\n{self.text()[-4000:]}"

    def kill(self, number=signal.SIGKILL):
        self.expected_death = self.expected_death or number in (signal.SIGKILL, signal.SIGTERM)
        try:
            os.killpg(self.popen.pid, number)
        except ProcessLookupError:
            pass

    def stop(self, seconds=15):
        """SIGTERM, then wait; the exit status, or None after a kill."""
        self.kill(signal.SIGTERM)
        try:
            return self.popen.wait(seconds * SLOW)
        except subprocess.TimeoutExpired:
            self.kill()
            self.popen.wait()
            return None


class Cluster:
    def __init__(self, prefill=1, decode=1, router=(), engine=(), prefill_set=(), decode_set=(),
                 model=None, wait=True, hosts=None, prefixes=None):
        """Extra settings are lists of "key=value". `hosts` and `prefixes` place roles in network namespaces: dicts by
        "router", "prefill", "decode" with an address and a command prefix."""
        self.model = model or need_model()
        self.folder = tempfile.mkdtemp(prefix="penstock-test-")
        self.hosts = hosts or {}
        self.prefixes = prefixes or {}
        self.router_host = self.hosts.get("router", "127.0.0.1")
        self.http_port = free_port()
        self.control_port = free_port()
        self.processes = []
        self.counter = 0
        self.engine = list(engine)
        self.role_settings = {"prefill": list(prefill_set), "decode": list(decode_set)}
        atexit.register(self.close)
        self.router = self.start("router", ["--set", f"http.listen={self.router_host}:{self.http_port}",
                                            "--set", f"control.listen=tcp://{self.router_host}:{self.control_port}",
                                            "--set", f"router.model={self.model}",
                                            "--set", "api.debug=true"] + self.flags(router))
        self.workers = [self.start_worker("prefill") for _ in range(prefill)]
        self.workers += [self.start_worker("decode") for _ in range(decode)]
        if wait:
            self.wait_ready(prefill, decode)

    @staticmethod
    def flags(settings):
        return [part for setting in settings for part in ("--set", setting)]

    def start(self, role, arguments, name=None):
        command = [os.path.join(BUILD, "bin", "penstock-" + role)] + arguments
        process = Process(name or role, command, self.folder, prefix=self.prefixes.get(role, ()))
        self.processes.append(process)
        return process

    def start_worker(self, role, extra=()):
        self.counter += 1
        name = f"{role}-{self.counter}"
        settings = [f"engine.model={self.model}", "engine.kv_bytes=192MiB", f"worker.name={name}",
                    f"worker.routers=tcp://{self.router_host}:{self.control_port}"]
        host = self.hosts.get(role, "127.0.0.1")
        settings += [f"worker.host={host}", f"fabric.host={host}"]
        settings += self.engine + self.role_settings[role] + list(extra)
        process = self.start(role, self.flags(settings), name)
        process.role = role
        return process

    def of(self, role):
        return [w for w in self.workers if w.role == role]

    # ---- talking to it -----------------------------------------------------------------------

    def request(self, method, path, body=None, headers=None, timeout=120):
        connection = http.client.HTTPConnection(self.router_host, self.http_port, timeout=timeout * SLOW)
        try:
            data = None if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode())
            sent = {"Content-Type": "application/json"} if data is not None else {}
            sent.update(headers or {})
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def json(self, method, path, body=None, expect=200, **more):
        code, _, data = self.request(method, path, body, **more)
        check(code == expect, f"{method} {path}: status {code}, not {expect}: {data[:500]!r}")
        return json.loads(data)

    def complete(self, prompt, **parameters):
        return self.json("POST", "/v1/completions", dict({"model": self.model_name(), "prompt": prompt}, **parameters))

    def chat(self, messages, **parameters):
        return self.json("POST", "/v1/chat/completions",
                         dict({"model": self.model_name(), "messages": messages}, **parameters))

    def stream(self, path, body, timeout=180, on_event=None):
        """The list of events of a streamed answer (decoded JSON; "[DONE]" as that string)."""
        connection = http.client.HTTPConnection(self.router_host, self.http_port, timeout=timeout * SLOW)
        events = []
        try:
            connection.request("POST", path, json.dumps(dict(body, stream=True)), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise Failure(f"stream {path}: status {response.status}: {response.read()[:500]!r}")
            for line in response:
                line = line.strip()
                if not line.startswith(b"data: "):
                    continue
                event = "[DONE]" if line == b"data: [DONE]" else json.loads(line[6:])
                events.append(event)
                if on_event:
                    on_event(event)
            return events
        finally:
            connection.close()

    def model_name(self):
        if not hasattr(self, "_model_name"):
            self._model_name = self.json("GET", "/v1/models")["data"][0]["id"]
        return self._model_name

    def state(self):
        return self.json("GET", "/cluster")

    # ---- waiting -----------------------------------------------------------------------------

    def until(self, what, test, seconds=60):
        end = time.monotonic() + seconds * SLOW
        last = None
        while time.monotonic() < end:
            for process in self.processes:
                if not process.alive() and not process.expected_death:
                    raise Failure(process.last_words())
            try:
                last = test()
                if last:
                    return last
            except (OSError, http.client.HTTPException, Failure, ValueError) as e:
                last = e
            time.sleep(0.05)
        raise Failure(f"not within {seconds * SLOW:.0f} s: {what} (last: {last})")

    def wait_ready(self, prefill, decode):
        def ready():
            workers = self.state()["workers"]
            roles = [w["role"] for w in workers if w.get("state", "alive") in ("alive", "ready")]
            return roles.count("prefill") >= prefill and roles.count("decode") >= decode
        self.until(f"{prefill} prefill and {decode} decode workers", ready)
        self.until("/ready", lambda: self.request("GET", "/ready")[0] == 200)

    def check_idle(self, seconds=15):
        """Every page is free again and nothing is counted as running: on every worker and in the router."""
        def idle():
            state = self.state()
            busy = [w for w in state["workers"] if w["pages_free"] != w["pages"] or w["pages_held"] or
                    w["sequences_running"] or w["sequences_waiting"] or w["pages_quarantined"]]
            if busy or state["requests_running"] or state["requests_waiting"]:
                raise Failure("not idle: " + json.dumps({"workers": busy, "running": state["requests_running"],
                                                         "waiting": state["requests_waiting"]}))
            return True
        self.until("all pages free and all gauges 0", idle, seconds)

    # ---- ending ------------------------------------------------------------------------------

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        failed = kind is not None
        for process in self.processes:
            if not process.alive() and not process.expected_death:
                failed = True
                print(process.last_words())
        codes = {}
        for process in reversed(self.processes):
            if process.alive():
                codes[process.name] = process.stop()
        bad = {name: code for name, code in codes.items() if code not in (0, None)}
        reports = [p.name for p in self.processes if "Sanitizer" in p.text() or "runtime error:" in p.text()]
        if failed or bad or reports:
            for process in self.processes:
                print(f"---- {process.name}\n{process.text()[-6000:]}")
        self.close()
        if not failed:
            check(not bad, f"exit status after SIGTERM: {bad}")
            check(not reports, f"sanitizer reports in {reports}")

    def close(self):
        for process in self.processes:
            if process.alive():
                process.kill(signal.SIGCONT)
                process.kill()
                process.popen.wait()
            if not process.log.closed:
                process.log.close()
        for process in self.processes:
            try:
                os.unlink(process.log_path)
            except OSError:
                pass
        try:
            os.rmdir(self.folder)
        except OSError:
            pass
        atexit.unregister(self.close)


def hashes(answer):
    """The logits hashes of a non-streamed answer, one per generated token."""
    return answer["choices"][0]["penstock"]["logits_hash"]


def together(jobs):
    """Run callables at the same time; their results in order; the first exception is raised."""
    results = [None] * len(jobs)
    errors = []

    def run(i):
        try:
            results[i] = jobs[i]()
        except BaseException as e:  # noqa: B902 - handed to the caller below
            errors.append(e)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def run_parts(parts, *arguments):
    """Call one part of a test after the other, each with the arguments; a Failure names its part."""
    for part in parts:
        began = time.monotonic()
        try:
            part(*arguments)
        except Failure as e:
            raise Failure(f"{part.__name__}: {e}") from e
        print(f"{part.__name__} is right ({time.monotonic() - began:.1f} s)", flush=True)


def main(test):
    """Run a test function; a Failure is printed as one sentence."""
    try:
        test()
    except Failure as e:
        print("failed: " + str(e))
        sys.exit(1)
    print("passed")
