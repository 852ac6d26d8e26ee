#!/usr/bin/env python3
# tags: integration model slow
# limit: 600
"""One request gives the same tokens and the same bits of logits: alone, in a crowd, with chunks of 16, 64 and 512, on 1P1D and
2P2D, with prefill remote and local, with a prefix hit and without."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import Cluster, check, hashes, main, together  # noqa: E402

WORDS = ("river stone winter lantern copper bridge garden silver thunder market harbor velvet meadow engine "
         "paper window summer ladder mirror basket").split()


def text(seed, count):
    return " ".join(WORDS[(seed * 7 + i * i + i * seed) % len(WORDS)] for i in range(count))


PROMPT = "The keeper of the lighthouse wrote: " + text(3, 150)
REQUESTS = {
    "greedy": dict(temperature=0, max_tokens=10, ignore_eos=True, logits_hash=True),
    "sampled": dict(temperature=0.9, top_p=0.95, seed=7, presence_penalty=0.5, repetition_penalty=1.1, max_tokens=10,
                    ignore_eos=True, logits_hash=True),
}


def ask(cluster, kind, prompt=PROMPT):
    answer = cluster.complete(prompt, **REQUESTS[kind])
    found = hashes(answer)
    check(len(found) == REQUESTS[kind]["max_tokens"], f"{kind}: {len(found)} hashes: {answer}")
    check(all(int(h, 16) for h in found), f"{kind}: a hash is 0: {found}")
    return answer["choices"][0]["text"], tuple(found), answer["usage"]


def compare(cluster, truth, where):
    for kind in REQUESTS:
        got = ask(cluster, kind)
        check(got[:2] == truth[kind][:2], f"{kind}, {where}: {got[:2]} is not {truth[kind][:2]}")
    return got[2]


def crowd(cluster, kind):
    others = [lambda i=i: cluster.complete(text(i + 20, 10 + 13 * i), temperature=0.7, seed=i, max_tokens=24)
              for i in range(16)]
    return together(others[:8] + [lambda: ask(cluster, kind)] + others[8:])[8]


def test():
    truth = {}
    for chunk in (64, 16, 512):
        with Cluster(1, 1, engine=[f"engine.chunk_tokens={chunk}"], router=["policy.local_prefill_tokens=0"]) as cluster:
            where = f"1P1D, chunk {chunk}"
            if not truth:
                truth = {kind: ask(cluster, kind) for kind in REQUESTS}
            usage = compare(cluster, truth, where + ", prefix hit")
            check(usage["prompt_tokens_details"]["cached_tokens"] > 0, f"{where}: no prefix hit: {usage}")
            if chunk == 64:
                for kind in REQUESTS:
                    got = crowd(cluster, kind)
                    check(got[:2] == truth[kind][:2], f"{kind}, in a crowd: {got[:2]} is not {truth[kind][:2]}")
            cluster.check_idle()
    with Cluster(0, 1) as cluster:
        compare(cluster, truth, "local prefill")
        compare(cluster, truth, "local prefill, prefix hit")
        cluster.check_idle()
    with Cluster(2, 2, router=["policy.local_prefill_tokens=0"]) as cluster:
        for _ in range(2):
            compare(cluster, truth, "2P2D")
        for kind in REQUESTS:
            got = crowd(cluster, kind)
            check(got[:2] == truth[kind][:2], f"{kind}, 2P2D in a crowd: {got[:2]} is not {truth[kind][:2]}")
        cluster.check_idle()


main(test)
