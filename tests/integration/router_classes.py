#!/usr/bin/env python3
# tags: integration router
# limit: 120
"""Interactive and batch requests, and those with a deadline, when room is short; over workers without an engine."""
import http.client
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fakes import FakeCluster  # noqa: E402
from cluster import SLOW, check, main, run_parts  # noqa: E402
from short_room import Stream, body, timed  # noqa: E402


def batch_waits_behind_interactive():
    """Interactive requests pass waiting batch ones, which are served all the same."""
    with FakeCluster(router=["admission.batch_delay=60s", "admission.patience=60s"]) as cluster:
        cluster.fake("decode", "d", sequences=1, step_ms=5)
        kinds = {}

        def one(kind, **more):
            code, _, _, answer = timed(cluster, words=10, tokens=10, **more)
            check(code == 200, f"{kind}: {code}")
            kinds[answer["id"]] = kind
        blocker = http.client.HTTPConnection(cluster.router_host, cluster.http_port)  # until we leave
        blocker.request("POST", "/v1/completions", json.dumps(body(cluster, words=10, tokens=5000)), {"Content-Type": "application/json"})
        cluster.until("the worker is busy", lambda: cluster.worker("d")["sequences_running"] == 1)
        threads = []
        for kind, more in (("batch", {"priority": 1}), ("interactive", {}), ("interactive", {})):
            threads.append(threading.Thread(target=one, args=(kind,), kwargs=more))
            threads[-1].start()
            cluster.until("it waits", lambda: cluster.state()["requests_waiting"] == len(threads))
        blocker.close()
        for thread in threads:
            thread.join()
        begun = [(r["times_ms"]["routed"] - r["age_ms"], r["id"]) for r in cluster.json("GET", "/requests")["requests"] if r["id"] in kinds]
        order = [kinds[i] for _, i in sorted(begun)]
        check(order == ["interactive", "interactive", "batch"], f"{order}")
        cluster.check_idle()
    with FakeCluster(router=["admission.batch_delay=1s", "admission.patience=60s"]) as cluster:
        cluster.fake("decode", "d", sequences=1, step_ms=5)
        with Stream(cluster, 3, words=10, tokens=10):  # more than the worker can do: a batch request's turn comes
            code, seconds, _, _ = timed(cluster, words=10, tokens=10, priority=1)
            check(code == 200, f"{code} after {seconds:.1f} s")
        cluster.check_idle()


def classes_have_their_own_limits():
    """The batch queue fills by itself; batch requests hold their share of the sequences at most."""
    with FakeCluster(router=["admission.batch_queue=2", "admission.batch_share=0.5"]) as cluster:
        cluster.fake("decode", "d", sequences=4, step_ms=50)
        batch = [threading.Thread(target=lambda: codes.append(timed(cluster, words=10, tokens=20, priority=1)[0])) for _ in range(4)]
        codes = []
        for thread in batch:
            thread.start()
        cluster.until("two run, two wait", lambda: (cluster.state()["requests_running"], cluster.state()["requests_waiting"]) == (2, 2))
        code, _, headers, answer = timed(cluster, priority=1)
        check(code == 429 and answer["error"]["code"] == "queue_full" and int(headers["Retry-After"]) >= 1, f"{code} {answer}")
        check(timed(cluster, words=10, tokens=3)[0] == 200, "interactive requests have room")
        for thread in batch:
            thread.join()
        check(codes == [200] * 4, f"{codes}")
        cluster.check_idle()


def a_full_share_hides_nobody():
    """However many batch requests stand before it without finding room in their share, an interactive request is served."""
    with FakeCluster(router=["admission.batch_share=0.5", "admission.batch_delay=0"]) as cluster:
        cluster.fake("decode", "d", sequences=4, step_ms=50)
        batch = [http.client.HTTPConnection(cluster.router_host, cluster.http_port) for _ in range(72)]
        for connection in batch:  # they outlast the test
            connection.request("POST", "/v1/completions", json.dumps(body(cluster, words=10, tokens=5000, priority=1)), {"Content-Type": "application/json"})
        cluster.until("two run, the others wait", lambda: (cluster.state()["requests_running"], cluster.state()["requests_waiting"]) == (2, 70))
        code, _, _, answer = timed(cluster, words=10, tokens=3, timeout=30)
        check(code == 200, f"{code} {answer}")
        check(cluster.state()["requests_waiting"] == 70, "it passed them")
        for connection in batch:
            connection.close()
        cluster.check_idle()


def deadlines():
    """`timeout` ends a request with 504 or an error event; one that cannot be met is refused at once with Retry-After."""
    with FakeCluster() as cluster:
        cluster.fake("decode", "d", sequences=1, step_ms=20)
        code, seconds, _, answer = timed(cluster, tokens=500, timeout=0.4)
        check(code == 504 and answer["error"]["code"] == "deadline" and seconds > 0.3, f"{code} {seconds:.1f} {answer}")
        cluster.check_idle()
        events = cluster.stream("/v1/completions", body(cluster, tokens=5000, timeout=6))  # long enough for a first token
        check(len(events) > 1 and events[-1]["error"]["code"] == "deadline", f"{events[-1]}")
        for wrong in (0, -1, "1", 1e6):
            code, _, _, answer = timed(cluster, timeout=wrong)
            check(code == 400 and answer["error"]["param"] == "timeout", f"{wrong}: {code} {answer}")
        with Stream(cluster, 8, words=10, tokens=10):  # 0.2 s each, so 7 that wait take about 1.4 s
            time.sleep(2.5 * SLOW)  # until the rate is measured
            code, seconds, headers, answer = timed(cluster, timeout=0.5)
            check(code == 429 and answer["error"]["code"] == "deadline_unreachable", f"{code} {answer}")
            check(1 <= int(headers["Retry-After"]) <= 10 * SLOW, f"{headers}")
            check(timed(cluster, words=10, tokens=1, timeout=60)[0] == 200, "one with time waits")
        cluster.check_idle()


def test():
    run_parts((batch_waits_behind_interactive, classes_have_their_own_limits, a_full_share_hides_nobody, deadlines))


main(test)
