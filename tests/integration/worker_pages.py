#!/usr/bin/env python3
# tags: integration
# limit: 120
"""The pages of the workers: /health, /ready with its reason, and /metrics, whose text promtool takes and whose numbers follow
the work; a router that stops or starts again. On the tiny model: nothing here depends on what is said."""
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, Cluster, check, main  # noqa: E402


def address(cluster, worker):
    found = cluster.until("the page of " + worker.name,
                          lambda: re.search(r"health and metrics at http://(\S+)", worker.text()))
    return found.group(1)


def get(where, path):
    connection = http.client.HTTPConnection(where, timeout=20)
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read().decode()


def value(text, series):
    found = re.search("^" + re.escape(series) + r" (\S+)$", text, re.M)
    check(found, f"{series} is not in the metrics:\n{text}")
    return float(found.group(1))


def promtool(text):
    tool = shutil.which("promtool") or os.path.expanduser("~/.cache/penstock/tools/promtool")
    if not os.path.exists(tool):
        print("promtool is not installed: /metrics is not checked by it")
        return
    done = subprocess.run([tool, "check", "metrics"], input=text.encode(), capture_output=True)
    check(done.returncode == 0, f"promtool: {done.stdout + done.stderr}")


def work_is_counted(cluster, prefill, decode):
    before = get(decode, "/metrics")[1]
    answer = cluster.complete("some words to begin with, and a few more " * 4, max_tokens=20, ignore_eos=True)
    check(answer["usage"]["completion_tokens"] == 20, str(answer["usage"]))
    cluster.check_idle()
    sent, received = get(prefill, "/metrics")[1], get(decode, "/metrics")[1]
    promtool(sent)
    promtool(received)
    tokens = 'penstock_worker_tokens_total{phase="%s"}'
    check(value(received, tokens % "decode") - value(before, tokens % "decode") == 19, received)
    check(value(sent, tokens % "prefill") == answer["usage"]["prompt_tokens"], sent)
    moved = 'penstock_worker_handoff_bytes_total{direction="%s"}'
    check(value(sent, moved % "sent") == value(received, moved % "received") > 0, sent + received)
    for text in (sent, received):
        check(value(text, 'penstock_worker_handoffs_total{result="delivered"}') == 1, text)
        check(value(text, 'penstock_worker_pages{state="held"}') == 0, text)
        check(value(text, "penstock_worker_ready") == 1, text)


def a_stopped_router_makes_workers_unready(cluster, pages):
    cluster.router.kill(signal.SIGSTOP)
    for page in pages:
        cluster.until("not ready", lambda: get(page, "/ready")[0] == 503)
        code, body = get(page, "/ready")
        check(code == 503 and "no router was joined" in body, f"{code} {body}")
        check(get(page, "/health")[0] == 200, "a worker without a router is alive")
    cluster.router.kill(signal.SIGCONT)
    for page in pages:
        cluster.until("ready again", lambda: get(page, "/ready")[0] == 200)
    cluster.wait_ready(1, 1)
    check(cluster.complete("again", max_tokens=3, ignore_eos=True)["usage"]["completion_tokens"] == 3, "an answer")
    cluster.check_idle()


def a_restarted_router_finds_its_workers(cluster, pages):
    command = cluster.router.popen.args
    cluster.router.kill()
    cluster.router.popen.wait()
    for page in pages:
        cluster.until("not ready", lambda: get(page, "/ready")[0] == 503)
    cluster.router = cluster.start("router", command[1:], name="router-again")
    cluster.wait_ready(1, 1)
    check(cluster.complete("once more", max_tokens=3, ignore_eos=True)["usage"]["completion_tokens"] == 3, "an answer")
    cluster.check_idle()


def test():
    model = os.path.join(tempfile.mkdtemp(prefix="penstock-test-"), "tiny.gguf")
    subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), model], check=True)
    try:
        with Cluster(prefill=1, decode=1, model=model, router=["policy.local_prefill_tokens=0"]) as cluster:
            pages = [address(cluster, worker) for worker in cluster.workers]
            for page in pages:
                check(get(page, "/health") == (200, '{"status":"alive"}\n'), str(get(page, "/health")))
                check(get(page, "/ready")[0] == 200, str(get(page, "/ready")))
                check(get(page, "/elsewhere")[0] == 404, "an unknown path")
            work_is_counted(cluster, *pages)
            a_stopped_router_makes_workers_unready(cluster, pages)
            a_restarted_router_finds_its_workers(cluster, pages)
    finally:
        os.unlink(model)
        os.rmdir(os.path.dirname(model))


main(test)
