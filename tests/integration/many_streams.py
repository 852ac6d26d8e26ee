#!/usr/bin/env python3
# tags: integration
# limit: 400
"""32 concurrent streams on 2P2D complete, each equal to its answer when run alone; afterwards every page is free."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import Cluster, check, main, together  # noqa: E402


def body(cluster, i):
    return {"model": cluster.model_name(), "max_tokens": 12 + i % 5, "seed": i, "temperature": 0 if i % 2 else 0.8,
            "messages": [{"role": "user", "content": f"Tell me one fact about the number {i}. " + "Be brief. " * (i % 7)}],
            "stream_options": {"include_usage": True}}


def streamed(cluster, i):
    events = cluster.stream("/v1/chat/completions", body(cluster, i))
    check(events and events[-1] == "[DONE]", f"stream {i} has no end: {events[-2:]}")
    errors = [e for e in events if e != "[DONE]" and "error" in e]
    check(not errors, f"stream {i}: {errors}")
    choices = [e["choices"][0] for e in events[:-1] if e["choices"]]
    text = "".join(c["delta"].get("content") or "" for c in choices)
    finishes = [c["finish_reason"] for c in choices if c["finish_reason"]]
    check(len(finishes) == 1, f"stream {i}: finish reasons {finishes}")
    usage = [e["usage"] for e in events[:-1] if not e["choices"]]
    check(len(usage) == 1, f"stream {i}: {len(usage)} usage chunks")
    return text, finishes[0], usage[0]["completion_tokens"]


def test():
    with Cluster(2, 2, router=["policy.local_prefill_tokens=0"]) as cluster:
        together_answers = together([lambda i=i: streamed(cluster, i) for i in range(32)])
        cluster.check_idle()
        for i in range(0, 32, 3):
            plain = dict(body(cluster, i))
            del plain["stream_options"]
            alone = cluster.json("POST", "/v1/chat/completions", plain)
            choice = alone["choices"][0]
            got = (choice["message"]["content"], choice["finish_reason"], alone["usage"]["completion_tokens"])
            check(got == together_answers[i], f"stream {i}: {together_answers[i]} alone is {got}")
        cluster.check_idle()


main(test)
