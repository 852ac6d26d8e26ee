#!/usr/bin/env python3
# tags: integration
# limit: 120
"""A worker that has work and makes no step: it is not healthy and not ready, the log has once what every thread does, and its
requests go on at another worker. On the tiny model."""
import http.client
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, SLOW, Cluster, check, main  # noqa: E402

DUMP = "error worker no step"


def settings(stall_s):
    return [f"worker.step_deadline={int(500 * SLOW)}ms", f"faults=worker.stall:1:{int(1000 * stall_s)}:1"]


def page(cluster, worker, path):
    where = cluster.until("its page", lambda: re.search(r"health and metrics at http://(\S+)", worker.text())).group(1)
    connection = http.client.HTTPConnection(where, timeout=20)
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read().decode()


def completion(cluster):
    return cluster.complete("some words to begin with", max_tokens=30, ignore_eos=True, temperature=0)["choices"]


def alone(model):
    """The only worker stands still for a while: the log says where, once; then it goes on and nothing is lost."""
    stall_s = max(10, 3 * SLOW)
    with Cluster(prefill=0, decode=1, model=model, decode_set=settings(stall_s)) as cluster:
        worker, answers = cluster.workers[0], []
        client = threading.Thread(target=lambda: answers.append(completion(cluster)))
        client.start()
        cluster.until("it is not healthy", lambda: page(cluster, worker, "/health")[0] == 503)
        code, body = page(cluster, worker, "/ready")
        check(code == 503 and "there is work and no step was made" in body, f"{code} {body}")
        cluster.until("the router knows", lambda: cluster.state()["workers"][0]["state"] == "unhealthy")
        client.join()
        cluster.until("it is ready again", lambda: page(cluster, worker, "/ready")[0] == 200)
        check(answers[0] == completion(cluster), "the same answer")
        text = worker.text()
        check(text.count(DUMP) == 1 and "warn worker steps go on" in text, text)
        dump = text[text.index(DUMP):text.index("steps go on")]
        for name, does in (("step", "standing still as the fault point worker.stall asks"), ("fabric", "waiting for the fabric, or moving pages"),
                           ("join", "resting|visiting routers"), ("beat", "speaking to routers")):
            check(re.search(rf'thread \d+ name {name} state \w waits_in \S+ does "({does})" for_ms \d+', dump), f"{name}: {dump}")
        stalled = re.search(r'name step .* for_ms (\d+)', dump)
        check(400 * SLOW <= int(stalled.group(1)) <= 1000 * stall_s, stalled.group(0))
        cluster.check_idle()


def beside_another(model):
    """With another worker there, a request does not wait for the one that stands still."""
    stall_s = max(15, 8 * SLOW)
    with Cluster(prefill=0, decode=1, model=model, decode_set=settings(stall_s)) as cluster:
        cluster.role_settings["decode"] = []
        answers = []
        client = threading.Thread(target=lambda: answers.append((completion(cluster), time.monotonic())))
        client.start()
        cluster.until("it has the request", lambda: cluster.state()["requests_running"] == 1)
        began = time.monotonic()
        cluster.workers.append(cluster.start_worker("decode"))
        client.join()
        check("worker_stuck" in cluster.router.text(), "it was tried elsewhere")
        check(answers[0][1] - began < stall_s - 1, f"it waited {answers[0][1] - began:.1f} s")
        cluster.until("the first goes on", lambda: [w["state"] for w in cluster.state()["workers"]] == ["alive"] * 2)
        check(answers[0][0] == completion(cluster), "the same answer")
        cluster.check_idle()


def test():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), model], check=True)
        alone(model)
        beside_another(model)


main(test)
