#!/usr/bin/env python3
# tags: integration
# limit: 400
"""A SIGKILLed worker: its requests are done by another one with the same text, the cluster goes on, no page leaks; with no other worker of
its kind the client gets a clear error; a restarted worker serves again."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import Cluster, Failure, check, main, together  # noqa: E402
from streams import PACE  # noqa: E402

PROMPT = "List the months of the year and say something about each of them. " * 6


def body(cluster, tokens=40):
    return {"model": cluster.model_name(), "prompt": PROMPT, "max_tokens": tokens, "temperature": 0.8, "seed": 11,
            "presence_penalty": 0.3, "ignore_eos": True}


def text_of(events):
    check(events[-1] == "[DONE]", f"the stream has no end: {events[-2:]}")
    return "".join(e["choices"][0]["text"] for e in events[:-1] if e["choices"])


def killed_after(cluster, count, role):
    seen = [0]
    victims = []

    def on_event(_):
        seen[0] += 1
        if seen[0] == count:
            state = cluster.state()["workers"]
            busy = [w["name"] for w in state if w["role"] == role and w["sequences_running"] > 0] or \
                   [w["name"] for w in state if w["role"] == role]
            victim = [w for w in cluster.workers if w.name == busy[0]][0]
            victim.kill()
            victims.append(victim)
    events = cluster.stream("/v1/completions", body(cluster), on_event=on_event)
    check(victims, "nothing was killed")
    return text_of(events), victims[0]


def replace(cluster, victim):
    cluster.workers.remove(victim)
    cluster.workers.append(cluster.start_worker(victim.role))
    cluster.wait_ready(2, 2)


def test():
    with Cluster(2, 2, router=["policy.local_prefill_tokens=0"], decode_set=PACE) as cluster:
        truth = text_of(cluster.stream("/v1/completions", body(cluster)))
        for count in (2, 15):
            text, victim = killed_after(cluster, count, "decode")
            check(text == truth, f"decode worker killed after {count} events: {text!r} is not {truth!r}")
            replace(cluster, victim)
        victim = cluster.of("prefill")[0]
        jobs = [lambda: text_of(cluster.stream("/v1/completions", body(cluster))) for _ in range(3)]
        jobs.append(victim.kill)
        for text in together(jobs)[:3]:
            check(text == truth, f"prefill worker killed: {text!r} is not {truth!r}")
        replace(cluster, victim)
        cluster.check_idle()
    with Cluster(1, 1, router=["router.retry_budget=3s"], decode_set=PACE) as cluster:
        worker = cluster.of("decode")[0]

        def on_event(_):
            if worker.alive():
                worker.kill()
        try:
            events = cluster.stream("/v1/completions", body(cluster, 200), on_event=on_event)
            errors = [e for e in events if e != "[DONE]" and "error" in e]
            check(errors and events[-1] != "[DONE]", f"no error event: {events[-3:]}")
        except Failure as e:
            check("status 50" in str(e), str(e))
        cluster.workers.remove(worker)
        cluster.workers.append(cluster.start_worker("decode"))
        cluster.wait_ready(1, 1)
        check(cluster.complete("Hello", max_tokens=4)["usage"]["completion_tokens"] > 0, "no answer after the restart")
        cluster.check_idle()


main(test)
