#!/usr/bin/env python3
# tags: integration model slow
# limit: 900
"""The bits of an answer do not depend on what dies or leaves: a decode worker killed before its Nth step, a prefill worker killed before its Nth
chunk, a decode worker drained after the Nth token; greedy, and sampled with penalties and a stop string."""
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import SLOW, Cluster, check, hashes, main, together  # noqa: E402
from streams import PACE, PATIENT, metric  # noqa: E402

PROMPT = "The keeper of the lighthouse wrote down what the sea brought him. " * 18  # about 300 tokens
SETTINGS = dict(router=PATIENT["router"] + ["policy.local_prefill_tokens=0"],
                engine=PATIENT["engine"] + ["engine.prefix_reuse=false", "engine.chunk_tokens=32"], decode_set=PACE)
TOKENS = 44
GREEDY = dict(temperature=0, max_tokens=TOKENS, ignore_eos=True, logits_hash=True)
SAMPLED = dict(temperature=0.9, top_p=0.95, seed=7, presence_penalty=0.5, frequency_penalty=0.3, repetition_penalty=1.1,
               max_tokens=TOKENS + 20, ignore_eos=True, logits_hash=True)


def ask(cluster, parameters):
    answer = cluster.complete(PROMPT, **parameters)
    choice = answer["choices"][0]
    return choice["text"], choice["finish_reason"], tuple(hashes(answer)), answer["usage"]["completion_tokens"]


def truths(cluster):
    """The kinds of requests with their answers; the sampled one is stopped by a string of its own text."""
    text, _, _, count = ask(cluster, SAMPLED)
    for size in range(6, 30):
        stop = text[len(text) * 3 // 4:][:size]
        if text.find(stop) == len(text) * 3 // 4:
            break
    kinds = [GREEDY, dict(SAMPLED, stop=["never in it", stop])]
    found = [ask(cluster, kind) for kind in kinds]
    check(found[0][3] == TOKENS, f"the greedy answer has {found[0][3]} tokens")
    check(found[1][1] == "stop" and 20 < found[1][3] < count, f"the stop string {stop!r} did not stop: {found[1]} of {text!r}")
    return list(zip(kinds, found))


def compare(cluster, truth, where, action=None):
    """Each kind twice at the same time: the least loaded rule puts some on each worker."""
    jobs = [lambda k=kind: ask(cluster, k) for kind, _ in truth * 2] + ([action] if action else [])
    for (_, expected), got in zip(truth * 2, together(jobs)):
        check(got == expected, f"{where}: {got} is not {expected}")


def received(cluster, reason):
    """How many tokens the router had when attempts failed for this reason."""
    return [int(n) for n in re.findall(rf"attempt 1 failed reason {reason} received (\d+)", cluster.router.text())]


def add(cluster, role, count, fault):
    worker = cluster.start_worker(role, [fault] if fault else [])
    cluster.workers.append(worker)
    cluster.wait_ready(*count)
    return worker


def gone(cluster, worker):
    worker.popen.wait(20 * SLOW)
    cluster.workers.remove(worker)


def decode_killed():
    with Cluster(1, 1, **SETTINGS) as cluster:
        truth = truths(cluster)
        for step in range(0, 44, 2):
            victim = add(cluster, "decode", (1, 2), f"faults=worker.die:1:{step}")
            victim.expected_death = True
            compare(cluster, truth, f"decode worker killed before step {step + 1}")
            gone(cluster, victim)
        places = received(cluster, "decode_worker_lost")
        check(len(set(places)) >= 20, f"killed at {sorted(set(places))} only")
        print(f"decode workers killed with {sorted(set(places))} tokens received")
        cluster.check_idle()
    return truth


def prefill_killed(truth):
    with Cluster(1, 1, **SETTINGS) as cluster:
        prompt = cluster.complete(PROMPT, max_tokens=1)["usage"]["prompt_tokens"]
        for chunk in range((prompt + 31) // 32):
            victim = add(cluster, "prefill", (2, 1), f"faults=worker.die:1:{chunk}")
            victim.expected_death = True
            compare(cluster, truth, f"prefill worker killed before chunk {chunk + 1}")
            gone(cluster, victim)
        deaths = len(received(cluster, r"\w+"))  # the decode worker may be the first to notice
        check(deaths > chunk, f"{deaths} requests met {chunk + 1} deaths")
        print(f"prefill workers killed before each of {chunk + 1} chunks")
        cluster.check_idle()


def decode_drained(truth):
    with Cluster(1, 1, **SETTINGS) as cluster:
        for after in range(0, 76, 4):  # of both sequences that it has
            # The worker waits before each step: so the signal meets the sequence where it is meant to.
            victim = add(cluster, "decode", (1, 2), "faults=worker.stall:1:50")

            def drain():
                def there():
                    found = [w for w in cluster.state()["workers"] if w["name"] == victim.name]
                    return found[0]["sequences_running"] > 0 and found[0]["decode_tokens"] >= after
                cluster.until(f"{after} tokens", there)
                victim.kill(signal.SIGTERM)
            compare(cluster, truth, f"decode worker drained after {after} tokens", drain)
            check(victim.popen.wait(20 * SLOW) == 0, f"{victim.name} ended with {victim.popen.returncode}")
            cluster.workers.remove(victim)
        moved = metric(cluster, "penstock_migrations_total", result="moved")
        places = {int(n) for n in re.findall(r"moves attempt 2 received (\d+)", cluster.router.text())}
        check(len(places) >= 12, f"moved at {sorted(places)} only")
        check(metric(cluster, "penstock_retries_total") == 0, "something was computed again")
        print(f"{moved:.0f} sequences moved, with {sorted(places)} tokens received")
        cluster.check_idle()


def test():
    truth = decode_killed()
    prefill_killed(truth)
    decode_drained(truth)


main(test)
