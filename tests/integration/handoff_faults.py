#!/usr/bin/env python3
# tags: integration handoff
# limit: 200
"""Page runs that are damaged or lost on their way never reach an answer: the request is planned again, then computed where it decodes, with
the same text, and that is counted; where local prefill is not allowed the request ends with an error that says so. Faults are off unless armed."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import Cluster, check, hashes, main  # noqa: E402
from streams import metric  # noqa: E402

REMOTE = "policy.local_prefill_tokens=0"
CHECKED = ["fabric.checksums=true", "fabric.suspect=500ms", "fabric.fail=1500ms"]
BODY = dict(prompt="An old map shows a road that nobody has walked for a hundred years. " * 8, max_tokens=8, temperature=0.8,
            seed=5, ignore_eos=True, logits_hash=True)


def ask(cluster):
    answer = cluster.complete(**BODY)
    return answer["choices"][0]["text"], hashes(answer)


def failures(cluster):
    return sum(w["handoff_failures"] for w in cluster.state()["workers"])


def test():
    with Cluster(1, 1, router=[REMOTE], prefill_set=CHECKED, decode_set=CHECKED) as cluster:
        truth = ask(cluster)
        check(failures(cluster) == 0, "a hand-off failed though no fault is armed")
        check(metric(cluster, "penstock_fallbacks_total", reason="handoff_failed") == 0, "a fallback is counted though nothing failed")
        cluster.check_idle()
    for fault in ("handoff.corrupt", "handoff.drop"):
        with Cluster(1, 1, router=[REMOTE], prefill_set=CHECKED + ["faults=" + fault], decode_set=CHECKED) as cluster:
            got = ask(cluster)
            check(got == truth, f"{fault}: {got} is not {truth}")
            check(metric(cluster, "penstock_fallbacks_total", reason="handoff_failed") == 1, f"{fault}: the fallback is not counted")
            cluster.until(f"{fault}: the failure is reported", lambda: failures(cluster) > 0, 10)
            cluster.check_idle()
    with Cluster(1, 1, router=[REMOTE, "policy.local_prefill=false", "router.retry_budget=2s"],
                 prefill_set=CHECKED + ["faults=handoff.corrupt"], decode_set=CHECKED) as cluster:
        # Every attempt's prefill makes a token, but that is no progress.
        body = dict(BODY, model=cluster.model_name(), max_tokens=1000)
        error = cluster.json("POST", "/v1/completions", body, expect=502)["error"]
        check(error["code"] == "handoff_failed" and "policy.local_prefill" in error["message"], f"without local prefill: {error}")
        check(metric(cluster, "penstock_fallbacks_total", reason="handoff_failed") == 0, "a fallback that is not allowed was taken")
        cluster.check_idle()


main(test)
