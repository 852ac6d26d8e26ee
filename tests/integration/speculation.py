#!/usr/bin/env python3
# tags: integration model
# limit: 300
"""Guessing changes no answer: random requests (greedy, sampled, penalties, biases, stop strings, log-probabilities) have the same text and the
same bits of logits with every drafter and without one, alone, in a crowd, and when a decode worker is killed half-way.

    tests/integration/speculation.py [--requests N] [--seed S]     (the model: PENSTOCK_MODEL)
"""
import argparse
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import Cluster, check, hashes, main, together  # noqa: E402
from streams import PATIENT, metric  # noqa: E402

WORDS = "river stone winter lantern copper bridge garden silver thunder market harbor velvet".split()
CROWD = 8


def request(draw):
    """A random request; half of the prompts repeat themselves, so that there is something to guess."""
    sentence = " ".join(draw.choice(WORDS) for _ in range(draw.randint(5, 12)))
    prompt = " ".join([sentence] * draw.randint(2, 5)) if draw.random() < 0.5 else sentence
    r = dict(prompt=prompt, max_tokens=draw.randint(20, 70), ignore_eos=draw.random() < 0.7, logits_hash=True)
    r["temperature"] = draw.choice([0, 0, 0.5, 0.8, 1.2])
    r["seed"] = draw.randint(0, 2**31)
    if draw.random() < 0.3:
        r.update(presence_penalty=draw.uniform(0, 1), frequency_penalty=draw.uniform(0, 1), repetition_penalty=draw.uniform(1, 1.3))
    if draw.random() < 0.3:
        r.update(top_p=draw.uniform(0.5, 1), top_k=draw.randint(1, 50), min_p=draw.uniform(0, 0.1))
    if draw.random() < 0.3:
        r.update(logit_bias={str(draw.randint(300, 40000)): draw.uniform(-5, 5) for _ in range(3)})
    if draw.random() < 0.3:
        r.update(stop=[draw.choice([" the", "er", ".", "on"])])
    if draw.random() < 0.3:
        r.update(logprobs=draw.randint(0, 5))
    if draw.random() < 0.2:
        r.update(min_tokens=draw.randint(1, 20))
    return r


def ask(cluster, r):
    answer = cluster.complete(**r)
    choice = answer["choices"][0]
    return choice["text"], choice["finish_reason"], tuple(hashes(answer)), choice["logprobs"], answer["usage"]["completion_tokens"]


def crowd(cluster, requests):
    """The requests, so many at a time, in order."""
    found = []
    for first in range(0, len(requests), CROWD):
        found += together([lambda r=r: ask(cluster, r) for r in requests[first:first + CROWD]])
    return found


def compare(truth, found, requests, where):
    for expected, got, r in zip(truth, found, requests):
        check(got == expected, f"{where}: {r}: {got} is not {expected}")


def guessed(cluster):
    """Right guesses of all decode workers' drafters."""
    return sum(metric(cluster, "penstock_worker_guesses_total", w, result="right") for w in cluster.of("decode") if w.alive())


def wishes(cluster):
    """A request says whose guesses may be used, and its usage tells what became of them."""
    r = dict(prompt="one two three four five six seven eight nine ten " * 6, max_tokens=48, ignore_eos=True, temperature=0)
    texts, right = set(), {}
    for wish in ("off", "ngram", "auto", "model", None):
        answer = cluster.complete(**dict(r, speculate=wish))
        details = answer["usage"]["completion_tokens_details"]
        texts.add(answer["choices"][0]["text"])
        right[wish] = details["accepted_prediction_tokens"]
        check(wish not in ("off", "model") or sum(details.values()) == 0, f"speculate {wish}: {details}")
    check(len(texts) == 1, f"the text depends on the drafter: {texts}")
    check(right["ngram"] > 0, f"a text that repeats itself was not guessed: {right}")
    failure = cluster.json("POST", "/v1/completions", dict(r, model=cluster.model_name(), speculate="maybe"), expect=400)["error"]
    check(failure["param"] == "speculate" and "maybe" in failure["message"], f"{failure}")


def killed(cluster, requests, truth, where):
    """One of two decode workers is killed while a crowd runs."""
    def kill():
        time.sleep(0.4)
        cluster.of("decode")[0].kill()
    found = together([lambda r=r: ask(cluster, r) for r in requests] + [kill])
    compare(truth, found[:-1], requests, where + ", a decode worker killed")


def test(arguments):
    draw = random.Random(arguments.seed)
    print(f"replay with --seed {arguments.seed}")
    requests = [request(draw) for _ in range(arguments.requests)]
    settings = dict(router=PATIENT["router"] + ["policy.local_prefill_tokens=0"], engine=PATIENT["engine"])
    with Cluster(1, 1, decode_set=["speculate.drafter=off"], **settings) as cluster:
        truth = crowd(cluster, requests)
        check(guessed(cluster) == 0, "something was guessed without a drafter")
    for drafter in ("auto", "ngram", "suffix"):
        with Cluster(1, 2, decode_set=[f"speculate.drafter={drafter}", "speculate.probe_percent=30"], **settings) as cluster:
            alone = requests[:max(6, len(requests) // 5)]
            compare(truth, [ask(cluster, r) for r in alone], alone, drafter + ", alone")
            compare(truth, crowd(cluster, requests), requests, drafter + ", in a crowd")
            check(guessed(cluster) > 0, f"{drafter}: nothing was guessed right")
            print(f"{drafter}: {guessed(cluster):.0f} tokens were guessed right")
            if drafter == "auto":
                wishes(cluster)
            cluster.check_idle()
            killed(cluster, requests[:CROWD], truth, drafter)
            cluster.check_idle()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("PENSTOCK_SEED") or random.randrange(10**6)))
    options = parser.parse_args()
    main(lambda: test(options))
