#!/usr/bin/env python3
# tags: integration router
# limit: 120
"""Who gets room when it is short: large and small requests, and one that may kill its worker; over workers without an engine."""
import http.client
import json
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fakes import FakeCluster  # noqa: E402
from cluster import SLOW, check, main, run_parts  # noqa: E402
from short_room import Stream, body, timed  # noqa: E402


def small_ones_pass_a_large_one():
    """A request without room does not hold up others that have it."""
    with FakeCluster(router=["admission.patience=60s"]) as cluster:
        cluster.fake("decode", "d", pages=16, step_ms=20)
        long = threading.Thread(target=lambda: timed(cluster, words=300, tokens=100))  # 6 pages for 2 s
        long.start()
        cluster.until("it runs", lambda: cluster.worker("d")["sequences_running"] == 1)
        big = threading.Thread(target=lambda: codes.append(timed(cluster, words=800, tokens=1)[0]))  # 14 pages
        codes = []
        big.start()
        cluster.until("the large one waits", lambda: cluster.state()["requests_waiting"] == 1)
        code, seconds, _, _ = timed(cluster, words=10, tokens=5)
        check(code == 200 and cluster.state()["requests_waiting"] == 1, f"{code} after {seconds:.1f} s")
        long.join()
        big.join()
        check(codes == [200], f"{codes}")
        cluster.check_idle()


def a_large_one_is_not_starved():
    """Small ones that never cease do not keep the room from a large one for longer than its patience and what runs."""
    with FakeCluster(router=["admission.patience=300ms"]) as cluster:
        cluster.fake("decode", "d", pages=16, step_ms=10)
        with Stream(cluster, 6, words=100, tokens=20) as small:  # 3 pages each, 0.2 s
            cluster.until("small ones run", lambda: len(small.codes) > 6)
            code, seconds, _, _ = timed(cluster, words=800, tokens=1)
            check(code == 200, f"{code} after {seconds:.1f} s")
            before = len(small.codes)
            cluster.until("small ones go on", lambda: len(small.codes) > before + 6)
        cluster.check_idle()


def a_kept_worker_does_not_stop_the_others():
    """While one worker is kept free for a large request, others work."""
    with FakeCluster(router=["admission.patience=0ms"]) as cluster:
        cluster.fake("decode", "a", pages=16, step_ms=30)
        cluster.fake("decode", "b", pages=16, step_ms=30)
        runs = [threading.Thread(target=lambda: timed(cluster, words=300, tokens=60)) for _ in range(2)]
        for thread in runs:
            thread.start()
        cluster.until("both work", lambda: all(w["sequences_running"] == 1 for w in cluster.state()["workers"]))
        big = threading.Thread(target=lambda: timed(cluster, words=800, tokens=1))
        big.start()
        cluster.until("the large one waits", lambda: cluster.state()["requests_waiting"] == 1)
        code, seconds, _, _ = timed(cluster, words=10, tokens=3)
        check(code == 200 and cluster.state()["requests_waiting"] == 1, f"{code} after {seconds:.1f} s")
        for thread in runs + [big]:
            thread.join()
        cluster.check_idle()


def one_that_met_two_deaths_runs_alone():
    """It waits until a worker is empty, nobody joins it there, and others go on behind it."""
    with FakeCluster() as cluster:
        cluster.fake("decode", "good", step_ms=20)
        first = http.client.HTTPConnection(cluster.router_host, cluster.http_port)  # until we leave
        first.request("POST", "/v1/completions", json.dumps(body(cluster, words=10, tokens=5000)), {"Content-Type": "application/json"})
        cluster.until("it runs", lambda: cluster.worker("good")["sequences_running"] == 1)
        for name in ("bad-1", "bad-2"):
            cluster.fake("decode", name, die=True).expected_death = True
        results = []
        suspect = threading.Thread(target=lambda: results.append(("suspect", timed(cluster, words=50, tokens=20)[0])))
        suspect.start()
        cluster.until("two died of it and it waits", lambda: len(cluster.state()["workers"]) == 1 and cluster.state()["requests_waiting"] == 1)
        small = threading.Thread(target=lambda: results.append(("small", timed(cluster, words=10, tokens=2)[0])))
        small.start()
        cluster.until("the small one waits too", lambda: cluster.state()["requests_waiting"] == 2)
        first.sock.close()
        cluster.until("the suspect runs", lambda: cluster.state()["requests_waiting"] == 1 or len(results) == 2)
        check(cluster.worker("good")["credits_sequences_spent"] <= 1, "it runs alone")
        suspect.join()
        small.join()
        check(results == [("suspect", 200), ("small", 200)], f"{results}")
        cluster.check_idle()


def test():
    run_parts((small_ones_pass_a_large_one, a_large_one_is_not_starved, a_kept_worker_does_not_stop_the_others,
               one_that_met_two_deaths_runs_alone))


main(test)
