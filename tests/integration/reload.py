#!/usr/bin/env python3
# tags: integration router
# limit: 120
"""SIGHUP: router and workers read their files again, take what can change while they run, name what cannot, and keep everything
where a file is at fault."""
import os
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fakes import FakeCluster  # noqa: E402
from cluster import BUILD, Cluster, check, main, together  # noqa: E402


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def reload(cluster, process, expected):
    """Send SIGHUP; the new log lines, once `expected` is among them."""
    before = len(process.text())
    process.kill(signal.SIGHUP)
    cluster.until(f"the log says {expected}", lambda: expected in process.text()[before:], 20)
    return process.text()[before:]


def restarted_router(cluster, path):
    """The cluster's router again, with a file; what it has on its command line still wins."""
    command = cluster.router.popen.args[1:]
    cluster.router.stop()
    cluster.router = cluster.start("router", command + ["--config", path], name="router-with-file")
    cluster.until("it answers", lambda: cluster.request("GET", "/health")[0] == 200)


def body(cluster, **more):
    return dict({"model": cluster.model_name(), "prompt": "net " * 20, "max_tokens": 20, "temperature": 0, "ignore_eos": True}, **more)


def the_router(folder):
    path = os.path.join(folder, "router.cfg")
    write(path, 'admission: { interactive_queue = 1; };')
    with FakeCluster() as cluster:
        restarted_router(cluster, path)
        cluster.fake("decode", sequences=1, step_ms=20)

        def codes():
            return sorted(r[0] for r in together([lambda: cluster.request("POST", "/v1/completions", body(cluster))] * 4))
        check(codes() == [200, 200, 429, 429], "one runs, one waits")
        write(path, 'admission: { interactive_queue = 9; }; control: { heartbeat = "400ms"; }; router: { request_timeout = "2min"; };')
        said = reload(cluster, cluster.router, "reload done")
        for line in ("info router reload admission.interactive_queue is taken", "info router reload router.request_timeout is taken",
                     "warn router reload control.heartbeat needs a restart"):
            check(line in said, f"{line} is not in {said}")
        check(said.count(" reload ") == 4, f"nothing else changed: {said}")
        check(codes() == [200] * 4, "three wait now")
        for wrong, sentence in (('admission: { interactive_queue = 0; };', "interactive_queue"), ('admission: {', path),
                                ('faults = ["nothing.such"];', "nothing.such")):
            write(path, wrong)
            check(sentence in reload(cluster, cluster.router, "reload refused, nothing changed: "), wrong)
        check(codes() == [200] * 4, "it goes on as before")
        write(path, 'log: { level = "warn"; }; admission: { interactive_queue = 9; }; control: { heartbeat = "400ms"; };')
        check(" is taken" not in reload(cluster, cluster.router, "control.heartbeat needs a restart"), "the level holds at once")


def the_workers(folder):
    model, path = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "decode.cfg")
    subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), model], check=True)
    write(path, "")
    with Cluster(0, 0, model=model, wait=False, router=["router.retry_budget=300ms"]) as cluster:
        worker = cluster.start("decode", Cluster.flags(
            [f"engine.model={model}", "engine.kv_bytes=64MiB", f"worker.routers=tcp://127.0.0.1:{cluster.control_port}",
             "worker.host=127.0.0.1", "fabric.host=127.0.0.1"]) + ["--config", path])
        cluster.wait_ready(0, 1)
        check(cluster.complete("words", max_tokens=3)["usage"]["completion_tokens"] == 3, "it serves")
        write(path, 'faults = ["ticket.refuse"]; engine: { max_sequences = 3; mixed_tokens = 64; };')
        said = reload(cluster, worker, "reload done")
        check("reload faults is taken" in said and "reload engine.max_sequences needs a restart" in said and
              "reload engine.mixed_tokens is taken" in said, said)
        check(cluster.request("POST", "/v1/completions", body(cluster))[0] == 503, "it refuses every ticket")
        write(path, "")
        reload(cluster, worker, "reload done")
        check(cluster.complete("words", max_tokens=3)["usage"]["completion_tokens"] == 3, "it serves again")
        write(path, "no_such_key = 1;")
        check("no_such_key" in reload(cluster, worker, "reload refused, nothing changed: "), "the key is named")
        long = threading.Thread(target=lambda: cluster.complete("words", max_tokens=500, ignore_eos=True))
        long.start()
        for _ in range(5):
            worker.kill(signal.SIGHUP)  # in mid-work, it is harmless
        long.join()
        cluster.check_idle()


def test():
    with tempfile.TemporaryDirectory() as folder:
        the_router(folder)
        the_workers(folder)


main(test)
