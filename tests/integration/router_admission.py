#!/usr/bin/env python3
# tags: integration router
# limit: 120
"""Who gets room when it is short: large and small requests, interactive and batch ones, those with a deadline; over workers
without an engine."""
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fakes import FakeCluster  # noqa: E402
from cluster import Failure, SLOW, check, main, together  # noqa: E402

WORD = "net "


def body(cluster, words=100, tokens=20, **more):
    return dict({"model": cluster.model_name(), "prompt": WORD * words, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}, **more)


def timed(cluster, **more):
    began = time.monotonic()
    code, headers, data = cluster.request("POST", "/v1/completions", body(cluster, **more))
    return code, time.monotonic() - began, headers, json.loads(data)


class Stream(threading.Thread):
    """Requests of one kind, one after another on `lanes` lanes, until it is stopped; how many were answered."""

    def __init__(self, cluster, lanes, **more):
        super().__init__()
        self.cluster, self.lanes, self.more = cluster, lanes, more
        self.done = threading.Event()
        self.codes = []

    def lane(self):
        while not self.done.is_set():
            self.codes.append(timed(self.cluster, **self.more)[0])

    def run(self):
        together([self.lane] * self.lanes)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.join()
        check(set(self.codes) == {200}, f"{set(self.codes)}")


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
            check(code == 200 and seconds < 3 * SLOW, f"{code} after {seconds:.1f} s")
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


def batch_waits_behind_interactive():
    """Interactive requests pass waiting batch ones, which are served all the same."""
    with FakeCluster(router=["admission.batch_delay=1s", "admission.patience=60s"]) as cluster:
        cluster.fake("decode", "d", sequences=1, step_ms=5)
        order = []

        def one(kind, **more):
            check(timed(cluster, words=10, tokens=10, **more)[0] == 200, kind)
            order.append(kind)
        blocker = threading.Thread(target=lambda: timed(cluster, words=10, tokens=80))
        blocker.start()
        cluster.until("the worker is busy", lambda: cluster.worker("d")["sequences_running"] == 1)
        threads = []
        for kind, more in (("batch", {"priority": 1}), ("interactive", {}), ("interactive", {})):
            threads.append(threading.Thread(target=one, args=(kind,), kwargs=more))
            threads[-1].start()
            cluster.until("it waits", lambda: cluster.state()["requests_waiting"] == len(threads))
        for thread in threads + [blocker]:
            thread.join()
        check(order == ["interactive", "interactive", "batch"], f"{order}")
        with Stream(cluster, 3, words=10, tokens=10):  # more than the worker can do: a batch request's turn comes
            code, seconds, _, _ = timed(cluster, words=10, tokens=10, priority=1)
            check(code == 200 and seconds < 6 * SLOW, f"{code} after {seconds:.1f} s")
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


def deadlines():
    """`timeout` ends a request with 504 or an error event; one that cannot be met is refused at once with Retry-After."""
    with FakeCluster() as cluster:
        cluster.fake("decode", "d", sequences=1, step_ms=20)
        code, seconds, _, answer = timed(cluster, tokens=500, timeout=0.4)
        check(code == 504 and answer["error"]["code"] == "deadline" and 0.3 < seconds < 2 * SLOW, f"{code} {seconds:.1f} {answer}")
        cluster.check_idle(2)
        events = cluster.stream("/v1/completions", body(cluster, tokens=500, timeout=0.4))
        check(events[-1]["error"]["code"] == "deadline", f"{events[-1]}")
        for wrong in (0, -1, "1", 1e6):
            code, _, _, answer = timed(cluster, timeout=wrong)
            check(code == 400 and answer["error"]["param"] == "timeout", f"{wrong}: {code} {answer}")
        with Stream(cluster, 8, words=10, tokens=10):  # 0.2 s each, so 7 that wait take about 1.4 s
            time.sleep(2.5 * SLOW)  # until the rate is measured
            code, seconds, headers, answer = timed(cluster, timeout=0.5)
            check(code == 429 and answer["error"]["code"] == "deadline_unreachable" and seconds < 0.4 * SLOW, f"{code} {answer}")
            check(1 <= int(headers["Retry-After"]) <= 10 * SLOW, f"{headers}")
            check(timed(cluster, words=10, tokens=1, timeout=60)[0] == 200, "one with time waits")
        cluster.check_idle()


def test():
    for part in (small_ones_pass_a_large_one, a_large_one_is_not_starved, a_kept_worker_does_not_stop_the_others,
                 batch_waits_behind_interactive, classes_have_their_own_limits, deadlines):
        began = time.monotonic()
        try:
            part()
        except Failure as e:
            raise Failure(f"{part.__name__}: {e}") from e
        print(f"{part.__name__} is right ({time.monotonic() - began:.1f} s)", flush=True)


main(test)
