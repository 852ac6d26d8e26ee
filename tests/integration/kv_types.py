#!/usr/bin/env python3
# tags: integration
# limit: 240
"""Each KV type from end to end on both roles, with the text of one worker alone; a worker of another KV type than those it would
pair with is refused when it joins, with a sentence. On the tiny model: nothing here depends on what is said."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, Cluster, check, main  # noqa: E402

PROMPT = "some words to begin with, and a few more " * 8


def answer(cluster):
    return cluster.complete(PROMPT, max_tokens=24, ignore_eos=True, seed=5, temperature=1)["choices"][0]["text"]


def handed_over_and_alone(model, kv_type):
    """The same text with a hand-off and without one; the cluster says which layout its workers have."""
    engine = ["engine.kv_type=" + kv_type]
    with Cluster(1, 1, engine=engine, model=model, router=["policy.local_prefill=false"]) as cluster:
        layouts = {w["kv_layout"] for w in cluster.state()["workers"]}
        check(len(layouts) == 1 and layouts.pop().startswith(kv_type + "/"), str(layouts))
        split = answer(cluster)
        cluster.check_idle()
    with Cluster(0, 1, engine=engine, model=model) as cluster:
        alone = answer(cluster)
    check(split == alone, f"{kv_type}: {split!r} after a hand-off, {alone!r} without")


def refused(model):
    """Whichever comes second; those that agree go on."""
    with Cluster(1, 1, engine=["engine.kv_type=f16"], model=model) as cluster:
        for role, other in (("decode", "prefill"), ("prefill", "decode")):
            stranger = cluster.start_worker(role, ["engine.kv_type=int8"])
            sentence = f'the worker\'s KV cache is "int8/cpu-pair32/1" where that of {other} worker {other}-'
            cluster.until("refused", lambda: sentence in stranger.text() and
                          "engine.kv_type must be the same for both roles" in stranger.text())
            check(stranger.stop() == 0, stranger.text())
        check(len(cluster.state()["workers"]) == 2, "the strangers are no workers")
        check(answer(cluster), "the others serve")


def test():
    model = os.path.join(tempfile.mkdtemp(prefix="penstock-test-"), "tiny.gguf")
    subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), model], check=True)
    try:
        for kv_type in ("f16", "bf16", "int8", "fp8", "f32"):
            handed_over_and_alone(model, kv_type)
        refused(model)
    finally:
        os.unlink(model)
        os.rmdir(os.path.dirname(model))


main(test)
