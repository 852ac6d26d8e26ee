#!/usr/bin/env python3
"""The longest pause that a client sees when a worker goes: 8 streams of at most 1,000 tokens of context on 2P2D, one table row for each way to go.

    PENSTOCK_MODEL=... tests/bench/pauses.py [ROUNDS [EVENT]]

The target stands beside the figure. Where prompts have to be computed again, the target allows for that: what computing as many contexts takes,
beside the streams that go on, is measured first. Prefixes are not reused, so that nothing of it is hidden. The median of ROUNDS (default 3) is
shown, and the worst; EVENT chooses those whose name contains it. Every text must be the right one.
"""
import os
import signal
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import Cluster, check, main, together  # noqa: E402
from streams import PACE, Watch  # noqa: E402

STREAMS = 8
WORDS = "river stone winter lantern copper bridge garden silver thunder market harbor velvet meadow engine paper window".split()
ANSWER = 120
# What happens to a worker: name, role, signal, seconds allowed, whether prompts are computed again.
EVENTS = [("decode worker drains", "decode", signal.SIGTERM, 0.3, False), ("prefill worker drains", "prefill", signal.SIGTERM, 0.3, False),
          ("decode worker killed", "decode", signal.SIGKILL, 1.0, True), ("prefill worker killed", "prefill", signal.SIGKILL, 1.0, True),
          ("decode worker stopped", "decode", signal.SIGSTOP, 4.0, True), ("prefill worker stopped", "prefill", signal.SIGSTOP, 4.0, True)]


def prompt(i):
    return f"{i}: " + " ".join(WORDS[(i * 5 + k * k + k * i) % len(WORDS)] for k in range(800))


def body(cluster, i, tokens=ANSWER):
    return dict(model=cluster.model_name(), prompt=prompt(i), max_tokens=tokens, temperature=0.8, seed=i, presence_penalty=0.2, ignore_eos=True)


def settle(cluster):
    cluster.check_idle(60)


def compute_again(cluster):
    """Seconds until the contexts of half of the streams are computed, all at once, beside the other half."""
    watch, took = Watch(), []

    def measure():
        watch.wait(STREAMS // 2 * 20)
        begun = time.monotonic()
        together([lambda i=i: cluster.json("POST", "/v1/completions", body(cluster, 50 + i, 1)) for i in range(STREAMS // 2)])
        took.append(time.monotonic() - begun)
    others = [dict(body(cluster, i, 500), prompt=prompt(i)[:1500]) for i in range(STREAMS // 2)]
    together([lambda b=b: watch.stream(cluster, b) for b in others] + [measure])
    return took[0]


def round_of(cluster, truth, role, number):
    watch = Watch()
    victims = []

    def act():
        watch.wait(STREAMS * ANSWER // 3)
        names = {w["name"]: w["sequences_running"] for w in cluster.state()["workers"] if w["role"] == role}
        name = max(names, key=names.get)
        victims.extend(w for w in cluster.workers if w.name == name)
        watch.longest = 0.0
        victims[0].expected_death = True
        victims[0].kill(number)
    texts = together([lambda i=i: watch.stream(cluster, body(cluster, i)) for i in range(STREAMS)] + [act])[:-1]
    check(texts == truth, "a text is another one")
    if number == signal.SIGSTOP:
        victims[0].kill(signal.SIGCONT)
        victims[0].kill(signal.SIGKILL)
    victims[0].popen.wait(60)
    cluster.workers.remove(victims[0])
    cluster.workers.append(cluster.start_worker(role))
    cluster.wait_ready(2, 2)
    settle(cluster)
    return watch.longest


def test():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with Cluster(2, 2, router=["policy.local_prefill_tokens=0"], engine=["engine.prefix_reuse=false", "engine.kv_bytes=384MiB"],
                 decode_set=PACE) as cluster:
        usage = cluster.json("POST", "/v1/completions", body(cluster, 0, 1))["usage"]
        check(usage["prompt_tokens"] + ANSWER <= 1000, f"the prompt has {usage['prompt_tokens']} tokens")
        base = Watch()
        truth = together([lambda i=i: base.stream(cluster, body(cluster, i)) for i in range(STREAMS)])
        settle(cluster)
        again = compute_again(cluster)
        print(f"{STREAMS} streams, {usage['prompt_tokens']} prompt tokens and {ANSWER} of answer; undisturbed: longest pause {base.longest:.2f} s; "
              f"computing {STREAMS // 2} contexts again: {again:.2f} s", flush=True)
        print(f"{'event':<24}{'pause':>8}{'worst':>8}{'target':>8}")
        chosen = [e for e in EVENTS if len(sys.argv) < 3 or sys.argv[2] in e[0]]
        for name, role, number, allowed, computes in chosen:
            pauses = [round_of(cluster, truth, role, number) for _ in range(rounds)]
            target = allowed + (again if computes else 0)
            median = statistics.median(pauses)
            print(f"{name:<24}{median:>7.2f}s{max(pauses):>7.2f}s{target:>7.2f}s{'' if median <= target else '  MISSED'}", flush=True)


main(test)
