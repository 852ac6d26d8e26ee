#!/usr/bin/env python3
# tags: integration router
# limit: 120
"""A thousand workers without an engine join one router, which serves with them; half of them go at once. Prints what it took."""
import http.client
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fakes import FakeCluster  # noqa: E402
from cluster import check, main, together  # noqa: E402

EACH = 500
LANES, REQUESTS = 8, 125


def cpu_s(process):
    with open(f"/proc/{process.popen.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def alive(cluster):
    return sum(w["state"] == "alive" for w in cluster.state()["workers"])


def lane(cluster):
    connection = http.client.HTTPConnection(cluster.router_host, cluster.http_port, timeout=60)
    body = json.dumps({"model": cluster.model_name(), "prompt": "net " * 100, "max_tokens": 2, "temperature": 0, "ignore_eos": True})
    used = set()
    for _ in range(REQUESTS):
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        check(response.status == 200 and answer["usage"]["completion_tokens"] == 2, f"{answer}")
        connection.request("GET", "/requests/" + answer["id"])
        line = json.loads(connection.getresponse().read())
        used.add((line["prefill_worker"], line["decode_worker"]))
    return used


def load(cluster):
    began, used_s = time.monotonic(), cpu_s(cluster.router)
    pairs = set().union(*together([lambda: lane(cluster)] * LANES))
    seconds = time.monotonic() - began
    print(f"{LANES * REQUESTS / seconds:.0f} requests/s, {1e6 * (cpu_s(cluster.router) - used_s) / (LANES * REQUESTS):.0f} us of the router's time each")
    return pairs


def test():
    with FakeCluster(router=["log.level=warn"]) as cluster:
        began = time.monotonic()
        for role in ("prefill", "decode"):
            cluster.fake(role, role, wait=False, count=EACH, prefill_ms=1, step_ms=1, handover_ms=1)
        cluster.until("all are alive", lambda: alive(cluster) == 2 * EACH, 60)
        print(f"{2 * EACH} workers joined in {time.monotonic() - began:.1f} s")
        began, used_s = time.monotonic(), cpu_s(cluster.router)
        time.sleep(2)
        print(f"their heartbeats take {100 * (cpu_s(cluster.router) - used_s) / (time.monotonic() - began):.1f} % of a core")
        pairs = load(cluster)
        check(len(pairs) > 1 and all(p[0] for p in pairs), f"{pairs}")
        cluster.workers[0].expected_death = True
        cluster.workers[0].kill()
        cluster.until("half of them are gone", lambda: alive(cluster) == EACH, 30)
        check({p[0] for p in load(cluster)} == {None}, "the others compute the prompts themselves")
        cluster.check_idle()


main(test)
