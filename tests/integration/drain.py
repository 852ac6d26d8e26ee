#!/usr/bin/env python3
# tags: integration
# limit: 300
"""A decode worker that drains hands its live sequences to others: nothing is computed again, every text is the one without a drain, and the
worker leaves at once. Where there is no room it gives them back in time, and that is counted. A death of either side of a move is no harm."""
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import SLOW, Cluster, check, main, together  # noqa: E402
from streams import PACE, PATIENT, Watch, metric, text_of  # noqa: E402

PROMPT = "List the months of the year and say something about each of them. " * 6
REMOTE = PATIENT["router"] + ["policy.local_prefill_tokens=0"]
KINDS = [dict(temperature=0), dict(temperature=0.9, seed=5, presence_penalty=0.4, frequency_penalty=0.2, repetition_penalty=1.1),
         dict(temperature=0.7, seed=9, top_p=0.9, stop=["zzz", "\n\n\n"])]


def body(cluster, kind, tokens=60):
    return dict(KINDS[kind], model=cluster.model_name(), prompt=f"{kind}: " + PROMPT, max_tokens=tokens, ignore_eos=True)


def busiest(cluster):
    state = [w for w in cluster.state()["workers"] if w["role"] == "decode"]
    name = max(state, key=lambda w: w["sequences_running"])["name"]
    return [w for w in cluster.workers if w.name == name][0]


def drained(cluster, requests, after, action):
    """The texts of `requests`, with `action(busiest decode worker)` after so many events; the longest pause."""
    watch = Watch()

    def act():
        watch.wait(after)
        action(busiest(cluster))
    texts = together([lambda r=r: watch.stream(cluster, r) for r in requests] + [act])
    return texts[:-1], watch.longest


def leave(worker):
    worker.kill(signal.SIGTERM)
    check(worker.popen.wait(20 * SLOW) == 0, f"{worker.name} ended with {worker.popen.returncode}")


def replace(cluster, victims, extra=()):
    count = len(cluster.of("decode"))
    for victim in victims:
        cluster.workers.remove(victim)
        cluster.workers.append(cluster.start_worker("decode", extra))
    cluster.wait_ready(1, count)


def moves():
    with Cluster(1, 2, router=REMOTE, engine=PATIENT["engine"], decode_set=PACE) as cluster:
        truth = [text_of(cluster.stream("/v1/completions", body(cluster, kind))) for kind in range(3)]
        for after in (8, 60, 150):
            victims = []
            texts, pause = drained(cluster, [body(cluster, i % 3) for i in range(6)], after,
                                   lambda w: (victims.append(w), leave(w)))
            for i, text in enumerate(texts):
                check(text == truth[i % 3], f"drain after {after} events, stream {i}: {text!r} is not {truth[i % 3]!r}")
            print(f"drain after {after} events: longest pause {pause * 1000:.0f} ms")
            replace(cluster, victims)
            cluster.check_idle()
        moved = metric(cluster, "penstock_migrations_total", result="moved")
        check(moved >= 1, f"{moved} sequences moved")
        check(metric(cluster, "penstock_migrations_total", result="failed") == 0, "a move failed")
        check(metric(cluster, "penstock_retries_total") == 0, "something was computed again")


def no_room():
    with Cluster(1, 2, router=REMOTE, engine=PATIENT["engine"], decode_set=PACE + ["engine.max_sequences=1", "worker.drain_seconds=1"]) as cluster:
        truth = [text_of(cluster.stream("/v1/completions", body(cluster, kind, 80))) for kind in range(2)]
        victims = []
        texts, _ = drained(cluster, [body(cluster, kind, 80) for kind in range(2)], 6,
                           lambda w: (victims.append(w), leave(w)))
        check(texts == truth, f"without room: {texts} is not {truth}")
        cluster.workers.remove(victims[0])
        cluster.check_idle()
        counts = {r: metric(cluster, "penstock_migrations_total", result=r) for r in ("moved", "recomputed")}
        check(counts["moved"] + counts["recomputed"] <= 1, f"one sequence was left: {counts}")


def deaths():
    slow = PACE + ["faults=handoff.delay:1:600"]  # the pages of a move wait so long
    with Cluster(1, 3, router=REMOTE, engine=PATIENT["engine"], decode_set=slow) as cluster:
        truth = text_of(cluster.stream("/v1/completions", body(cluster, 1, 120)))
        for side in ("from", "to"):
            victims = []

            def die(worker):
                before = len(cluster.router.text())
                worker.kill(signal.SIGTERM)
                target = cluster.until("a move begins", lambda: re.search(f" from {worker.name} to (\\S+)", cluster.router.text()[before:]), 20)
                victims.extend([worker, [w for w in cluster.workers if w.name == target.group(1)][0]])
                victims[side == "to"].kill()
            texts, _ = drained(cluster, [body(cluster, 1, 120)], 10, die)
            check(texts == [truth], f"{side} died while the sequence moved: {texts} is not {truth!r}")
            victims[0].popen.wait(30 * SLOW)
            replace(cluster, victims[:1 + (side == "to")], slow)
            cluster.check_idle()
        check(metric(cluster, "penstock_migrations_total", result="failed") == 2, "the failed moves are not counted")


def test():
    moves()
    no_room()
    deaths()


main(test)
