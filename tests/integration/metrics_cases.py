#!/usr/bin/env python3
# tags: integration router
# limit: 180
"""Field cases of metrics by name: gauges after everybody left, requests that ended in every way, series from clients' text,
counters under preemption. Router and workers, on the tiny model."""
import http.client
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, Cluster, SLOW, check, main, run_parts, together  # noqa: E402

PROMPT = "some words to begin with, and a few more " * 6


def metrics_at(host, port):
    connection = http.client.HTTPConnection(host, port, timeout=20)
    connection.request("GET", "/metrics")
    return parsed(connection.getresponse().read().decode())


def parsed(text):
    """Series to values; every line must be of the text format."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            check(re.fullmatch(r"# (HELP|TYPE) [a-z_0-9]+ .+", line), f"not of the text format: {line!r}")
            continue
        match = re.fullmatch(r'([a-z_0-9]+(?:\{[a-z_]+="(?:[^"\\\n]|\\[\\n"])*"(?:,[a-z_]+="(?:[^"\\\n]|\\[\\n"])*")*\})?) (\S+)', line)
        check(match, f"not of the text format: {line!r}")
        name = re.sub(r"\{,?\}", "", re.sub(r',?model="[^"]*"', "", match.group(1)))  # there is one model
        check(name not in found or 'model=""' in line, f"twice: {line!r}")
        found[name] = found.get(name, 0) + float(match.group(2))
    return found


def router_metrics(cluster):
    return metrics_at(cluster.router_host, cluster.http_port)


def worker_metrics(cluster, worker):
    where = cluster.until("its page", lambda: re.search(r"health and metrics at http://(\S+):(\d+)", worker.text()))
    return metrics_at(where.group(1), int(where.group(2)))


def body(cluster, **more):
    return dict({"model": cluster.model_name(), "prompt": PROMPT, "max_tokens": 5, "temperature": 0, "ignore_eos": True}, **more)


def open_stream(cluster, **more):
    connection = http.client.HTTPConnection(cluster.router_host, cluster.http_port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body(cluster, stream=True, **more)), {"Content-Type": "application/json"})
    return connection


def close_socket(connection):
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()


def all_zero(values, series):
    for name in series:
        check(values[name] == 0, f"{name}: {values[name]}")
    return True


def b098_gauges_after_everybody_left(cluster):
    """100 streams whose clients go in the same second; nobody asks for anything afterwards."""
    streams = [open_stream(cluster, max_tokens=1200) for _ in range(100)]
    cluster.until("they are under way", lambda: router_metrics(cluster)['penstock_requests{state="running"}'] >= 10)
    for connection in streams:
        close_socket(connection)
    time.sleep(2 * SLOW)
    of_router = [f'penstock_requests{{state="{state}"}}' for state in ("parsing", "waiting", "running")]
    for role in ("prefill", "decode"):
        of_router += [f'penstock_credit_pages{{role="{role}",state="spent"}}', f'penstock_pool_pages{{role="{role}",state="held"}}']
    cluster.until("the router's gauges are 0", lambda: all_zero(router_metrics(cluster), of_router), 15)
    of_worker = ['penstock_worker_sequences{state="running"}', 'penstock_worker_sequences{state="waiting"}', 'penstock_worker_pages{state="held"}']
    for worker in cluster.workers:
        cluster.until(f"the gauges of {worker.name} are 0", lambda: all_zero(worker_metrics(cluster, worker), of_worker), 15)


def b099_every_end_is_counted(cluster):
    """5 streams closed after the first chunk, 5 before it, 5 refused, 5 completed: each is in one outcome, and histograms say
    which requests they have."""
    before = router_metrics(cluster)
    for _ in range(5):
        connection = open_stream(cluster, max_tokens=1200)
        check(connection.getresponse().readline().startswith(b"data: "), "a first chunk")
        close_socket(connection)
    for worker in cluster.workers:
        worker.kill(19)  # SIGSTOP: no first chunk can come
    early = [open_stream(cluster, max_tokens=1200) for _ in range(5)]
    cluster.until("they are under way", lambda: sum(cluster.state()["requests_" + s] for s in ("waiting", "running")) >= 5)
    for connection in early:
        close_socket(connection)
    cluster.until("they are gone", lambda: sum(cluster.state()["requests_" + s] for s in ("waiting", "running")) == 0)
    for worker in cluster.workers:
        worker.kill(18)  # SIGCONT
    cluster.check_idle()
    for _ in range(5):
        check(cluster.request("POST", "/v1/completions", body(cluster, max_tokens=-1))[0] == 400, "a bad request")
        check(cluster.complete(PROMPT, max_tokens=3, ignore_eos=True)["usage"]["completion_tokens"] == 3, "a good one")
    after = router_metrics(cluster)
    gained = {name: after[name] - before.get(name, 0) for name in after}
    outcomes = {o: gained[f'penstock_requests_total{{outcome="{o}"}}'] for o in ("stop", "length", "abort", "error", "rejected")}
    check(outcomes == {"stop": 0, "length": 5, "abort": 10, "error": 0, "rejected": 5}, f"{outcomes}")
    check(gained["penstock_request_seconds_count"] == 5, "time of a request: those that were completed")
    check(gained["penstock_time_to_first_token_seconds_count"] == 10, "time to the first token: those that had one")


def b100_no_series_from_clients(cluster):
    """Model names, paths, users and prompts of clients make no series."""
    rng = random.Random(100)
    connection = http.client.HTTPConnection(cluster.router_host, cluster.http_port, timeout=60)

    def ask(method, path, sent=None):
        connection.request(method, path, json.dumps(sent) if sent is not None else None, {"Content-Type": "application/json"} if sent is not None else {})
        response = connection.getresponse()
        response.read()
        return response.status

    def one(i):
        text = "".join(rng.choice('abc"\\\n{}=,') for _ in range(8))
        ask("POST", "/v1/completions", body(cluster, model=text, user=text))
        ask("GET", "/nothing/" + str(rng.random()))
        if i % 10 == 0:
            check(ask("POST", "/v1/completions", body(cluster, user=text, max_tokens=1, prompt="word " * rng.randrange(1, 60))) == 200, "one is served")
    ask("GET", "/metrics")
    for i in range(20):
        one(10 * i)
    warm = set(router_metrics(cluster)), [set(worker_metrics(cluster, w)) for w in cluster.workers]
    for i in range(300):  # two requests each
        one(i)
    now = set(router_metrics(cluster)), [set(worker_metrics(cluster, w)) for w in cluster.workers]
    check(now == warm, f"new series: {now[0] - warm[0]}")


def b101_no_counter_falls(model):
    """More than the pool holds, cached prefixes and transfers: whatever is preempted, no counter falls and a hit is never
    longer than its prompt."""
    with Cluster(prefill=1, decode=1, model=model, router=["policy.local_prefill_tokens=0"], engine=["engine.kv_bytes=768KiB", "engine.growth_tokens=0"]) as cluster:
        done, seen = threading.Event(), [0]

        def watch():
            last = {}
            while not done.is_set():
                now = {("router",) + (k,): v for k, v in router_metrics(cluster).items()}
                for worker in cluster.workers:
                    now.update({(worker.name, k): v for k, v in worker_metrics(cluster, worker).items()})
                for key, value in now.items():
                    if re.search(r"(_total|_count|_bucket)(\{|$)", key[1]):
                        check(value >= last.get(key, 0), f"{key} fell from {last.get(key)} to {value}")
                last.update(now)
                seen[0] += 1
                time.sleep(0.01)

        def client(number):
            for i in range(6):
                answer = cluster.complete(PROMPT * (1 + (number + i) % 2), max_tokens=300, ignore_eos=True)
                usage = answer["usage"]
                check(usage["completion_tokens"] == 300, f"{usage}")
                check(usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"], f"{usage}")
            return True
        def load():
            try:
                together([lambda n=n: client(n) for n in range(8)])
            finally:
                done.set()
        together([watch, load])
        check(seen[0] > 3, "the metrics were read meanwhile")
        cluster.check_idle()
        decode = worker_metrics(cluster, cluster.workers[1])
        check(decode["penstock_worker_pages_evicted_total"] > 0, "cached pages were evicted")
        check(sum(v for k, v in decode.items() if k.startswith("penstock_worker_preemptions_total")) > 0, "sequences were preempted")


def test():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), model], check=True)
        with Cluster(prefill=1, decode=1, model=model, router=["policy.local_prefill_tokens=0"]) as cluster:
            run_parts((b098_gauges_after_everybody_left, b099_every_end_is_counted, b100_no_series_from_clients), cluster)
        run_parts([b101_no_counter_falls], model)


main(test)
