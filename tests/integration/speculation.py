#!/usr/bin/env python3
# tags: integration model
# limit: 1200
"""Guessing changes no answer: random requests (greedy, sampled, penalties, biases, grammars, stop strings, log-probabilities) have the same
text, the same log-probabilities and the same bits of logits with every drafter and without one, alone, in a crowd, and when a decode
worker is killed half-way and another one leaves. Every drafter is made to guess whether that pays or not, and must have been right and wrong; "auto" guesses as it pays.

    tests/integration/speculation.py [--requests N] [--seed S] [--draft FILE] [--drafters NAME,...]     (the model: PENSTOCK_MODEL)
"""
import argparse
import concurrent.futures
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, MODEL, SLOW, Cluster, check, free_port, hashes, main, need_model, run_parts, together  # noqa: E402
from streams import PATIENT, metric, text_of  # noqa: E402

WORDS = "river stone winter lantern copper bridge garden silver thunder market harbor velvet".split()
CROWD = 8
PATTERN = "[a-f]{2,6}-[0-9]{3,12}( (yes|no)){1,4}"
CHOICES = ["red", "green", "light blue, with a little silver"]
# Between its values there is one way to go on; a list of words repeats itself.
RECORD = {"type": "object", "properties": {"identifier": {"const": "river-17"}, "size": {"type": "integer", "minimum": 0, "maximum": 99},
          "words": {"type": "array", "items": {"enum": WORDS}, "minItems": 2, "maxItems": 6}},
          "required": ["identifier", "size", "words"], "additionalProperties": False}
SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"name": "data", "schema": RECORD, "strict": True}}}
GRAMMARS = [SCHEMA, {"structured_outputs": {"regex": PATTERN}}, {"structured_outputs": {"choice": CHOICES}}]
SETTINGS = dict(router=PATIENT["router"] + ["policy.local_prefill_tokens=0"],
                engine=PATIENT["engine"] + ["engine.threads=1"])  # three engines share the machine


def request(draw):
    """A random request; half of the prompts repeat themselves, so that there is something to guess."""
    sentence = " ".join(draw.choice(WORDS) for _ in range(draw.randint(5, 12)))
    prompt = " ".join([sentence] * draw.randint(2, 5)) if draw.random() < 0.5 else sentence
    r = dict(prompt=prompt, max_tokens=draw.randint(15, 60), ignore_eos=draw.random() < 0.7, logits_hash=True)
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
        r.update(min_tokens=draw.randint(1, 15))
    if draw.random() < 0.3:
        r.pop("stop", None)
        r.update(draw.choice(GRAMMARS), ignore_eos=False, max_tokens=60)
    return r


class Asker:
    """Asks a cluster, and counts what its usage says of guesses."""
    def __init__(self, cluster):
        self.cluster = cluster
        self.lock = threading.Lock()
        self.right = self.wrong = self.answers = self.again = self.moved = 0

    def ask(self, r):
        answer = self.cluster.complete(**r)
        choice, usage = answer["choices"][0], answer["usage"]
        details = usage["completion_tokens_details"]
        with self.lock:
            self.answers += 1
            self.right += details["accepted_prediction_tokens"]
            self.wrong += details["rejected_prediction_tokens"]
        return choice["text"], choice["finish_reason"], tuple(hashes(answer)), choice["logprobs"], usage["completion_tokens"]

    def crowd(self, requests):
        """The requests, so many at a time; their answers in order."""
        with concurrent.futures.ThreadPoolExecutor(CROWD) as pool:
            return list(pool.map(self.ask, requests))

    def crowd_disturbed(self, requests):
        """A crowd of which one of three decode workers is killed behind a third of the answers, and another one told to leave behind two."""
        def crowd():
            try:
                return self.crowd(requests)
            finally:
                over.set()

        def disturb():
            for part, worker, number in ((1, self.victims[0], signal.SIGKILL), (2, self.victims[1], signal.SIGTERM)):
                goal = begun + part * len(requests) // 3
                self.cluster.until(f"{goal} answers, and work at {worker.name}",
                                   lambda: over.is_set() or (self.answers >= goal and self.busy(worker)), 3600)
                worker.kill(number)
        begun, self.victims, over = self.answers, self.cluster.of("decode"), threading.Event()
        found = together([crowd, disturb])[0]
        self.again = metric(self.cluster, "penstock_retries_total")
        self.moved = metric(self.cluster, "penstock_migrations_total", result="moved")
        return found

    def busy(self, worker):
        return any(w["name"] == worker.name and w["sequences_running"] > 0 for w in self.cluster.state()["workers"])


def compare(truth, found, requests, where):
    for expected, got, r in zip(truth, found, requests):
        check(got == expected, f"{where}: {r}: {got} is not {expected}")


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


def b074_logprobs_are_those_without_guesses(cluster):
    """One entry for each token, of the model that is served, streamed or not, whether its guess was right or wrong."""
    r = dict(prompt="one two three four five six seven eight nine ten " * 4, max_tokens=40, ignore_eos=True, temperature=0.9, seed=4, logprobs=5,
             model=cluster.model_name())
    truth = cluster.complete(**dict(r, speculate="off"))
    answer = cluster.complete(**r)
    details = answer["usage"]["completion_tokens_details"]
    check(details["accepted_prediction_tokens"] > 0 and details["rejected_prediction_tokens"] > 0, f"{details}: both are wanted")
    expected, got = truth["choices"][0]["logprobs"], answer["choices"][0]["logprobs"]
    check(got == expected, f"{got} is not {expected}")
    check(len(got["tokens"]) == len(got["token_logprobs"]) == len(got["top_logprobs"]) == 40, f"{got} is not of 40 tokens")
    check(all(p < 0 for p in got["token_logprobs"]), f"{got['token_logprobs']}: at this temperature nothing is certain")
    events = cluster.stream("/v1/completions", r)
    parts = [e["choices"][0]["logprobs"] for e in events[:-1] if e["choices"]]
    check(text_of(events) == truth["choices"][0]["text"], "the streamed text differs")
    for name in ("tokens", "token_logprobs"):
        streamed = [x for part in parts if part for x in part[name]]
        check(streamed == expected[name], f"streamed {name}: {streamed} is not {expected[name]}")


def b076_grammars_hold_beside_free_requests(cluster):
    """Structured answers with guesses in one batch with free ones, of a schema that often leaves one way to go on."""
    free = dict(prompt="one two three four five six seven eight nine ten " * 4, max_tokens=40, ignore_eos=True, temperature=0, logits_hash=True)
    bound = [dict(prompt=f"A record of number {i}: ", max_tokens=120, temperature=t, seed=i, logits_hash=True, **SCHEMA)
             for i, t in enumerate((0, 0.8, 1.2, 1.5))]
    asker = Asker(cluster)
    requests = [r for one in bound for r in (one, dict(free, seed=one["seed"]))]
    truth = [asker.ask(dict(r, speculate="off")) for r in requests]
    check(asker.right + asker.wrong == 0, "guesses in spite of speculate: off")
    for _ in range(2):
        compare(truth, asker.crowd(requests), requests, "beside others")
    check(asker.right > 0, "nothing was guessed right")
    for text, finish, *_ in truth[::2]:
        check(finish == "stop", f"{text!r} was cut")
        value = json.loads(text)
        check(list(value) == ["identifier", "size", "words"] and value["identifier"] == "river-17" and 0 <= value["size"] <= 99 and
              2 <= len(value["words"]) <= 6 and set(value["words"]) <= set(WORDS), f"{text!r} is not of the schema")


def layers_of(path):
    """The number of layers that a GGUF file names: u32 behind its key's type."""
    with open(path, "rb") as file:
        head = file.read(1 << 16)
    found = re.search(rb"\.block_count\x04\0\0\0(....)", head, re.S)
    check(found, f"{path} does not say how many layers it has")
    return struct.unpack("<I", found.group(1))[0]


def drafters(draft, count):
    """Each drafter's settings, and whether it must have been wrong as well as right: with few requests what others said before is rarely wrong."""
    fixed = ["speculate.fixed=3", "speculate.prompt_tokens=256"]
    return {"auto": (["speculate.drafter=auto", "speculate.probe_percent=30", f"speculate.model={draft}"], False),
            "ngram": (["speculate.drafter=ngram"] + fixed, True),
            "suffix": (["speculate.drafter=suffix"] + fixed, count >= 100),
            "model": (["speculate.drafter=model", f"speculate.model={draft}"] + fixed, draft != MODEL),
            "layers": (["speculate.drafter=model", f"speculate.layers={layers_of(MODEL) - 2}"] + fixed, True),
            "faults": (["speculate.drafter=model", f"speculate.model={draft}", "faults=draft.fail:0.05,draft.stall:0.01:100"] + fixed, False)}


def run_drafter(name, settings, wrong, requests, truth):
    began = time.monotonic()
    with Cluster(1, 3, decode_set=settings, **SETTINGS) as cluster:
        asker = Asker(cluster)
        alone = requests[:max(4, len(requests) // 5)]
        compare(truth, [asker.ask(r) for r in alone], alone, name + ", alone")
        cluster.check_idle()
        billed, wanted = metric(cluster, "penstock_generated_tokens_total"), sum(answer[-1] for answer in truth[:len(alone)])
        check(billed == wanted, f"{name}: {billed} tokens were billed; {wanted} were delivered")
        if name == "ngram":
            run_parts([wishes, b074_logprobs_are_those_without_guesses, b076_grammars_hold_beside_free_requests], cluster)
        times = 1 + 3 * CROWD // len(requests)
        compare(truth * times, asker.crowd_disturbed(requests * times), requests * times, name + ", in a crowd")
        cluster.check_idle()
        faults = {reason: metric(cluster, "penstock_worker_fallbacks_total", cluster.of("decode")[2], kind="guesses", reason=reason)
                  for reason in ("pages", "failed", "stalled")}
    print(f"{name}: {len(alone)} alone and {len(requests) * times} in a crowd are equal; {asker.right} guesses were right and {asker.wrong} not; "
          f"{asker.again:.0f} began again elsewhere and {asker.moved:.0f} moved; the draft model's troubles: {faults} "
          f"({time.monotonic() - began:.0f} s)", flush=True)
    check(asker.right > 0, f"{name}: nothing was guessed right")
    check(asker.wrong > 0 or not wrong, f"{name}: nothing was guessed wrong")
    check(name != "faults" or faults["failed"] > 0, f"no fault was met: {faults}")
    return asker.again, asker.moved


def b075_a_worker_with_an_unfit_draft_model_does_not_start(folder):
    """Missing, cut, of another tokenizer: refused by the setting, the file and what is wrong."""
    cut = os.path.join(folder, "cut.gguf")
    with open(MODEL, "rb") as whole, open(cut, "wb") as part:
        part.write(whole.read(os.path.getsize(MODEL) // 3))
    cases = [("/nowhere/draft.gguf", "/nowhere/draft.gguf"), (cut, cut), (folder, folder)]
    others = [os.path.join(os.path.dirname(MODEL), f) for f in os.listdir(os.path.dirname(MODEL))
              if f.endswith(".gguf") and f[:4].lower() != os.path.basename(MODEL)[:4].lower()]
    cases += [(path, "speculate.model " + path + " has another vocabulary: its token ") for path in others]
    for path, sentence in cases:
        run = subprocess.run([os.path.join(BUILD, "bin", "penstock-decode")] + Cluster.flags(
            [f"engine.model={MODEL}", "engine.kv_bytes=32MiB", f"worker.routers=tcp://127.0.0.1:{free_port()}", f"speculate.model={path}"]),
            capture_output=True, text=True, timeout=60 * SLOW, stdin=subprocess.DEVNULL, check=False)
        said = run.stdout + run.stderr
        check(run.returncode not in (0, -6, -11) and sentence in said, f"with {path}: status {run.returncode}, {said[-500:]}")


def test(arguments):
    draw = random.Random(arguments.seed)
    print(f"replay with --seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        run_parts([b075_a_worker_with_an_unfit_draft_model_does_not_start], folder)
    requests = [request(draw) for _ in range(arguments.requests)]
    with Cluster(1, 1, decode_set=["speculate.drafter=off"], **SETTINGS) as cluster:
        asker = Asker(cluster)
        truth = asker.crowd(requests)
        check(asker.right + asker.wrong == 0, "something was guessed without a drafter")
    known = drafters(arguments.draft or MODEL, arguments.requests)
    names = arguments.drafters.split(",") if arguments.drafters else known
    disturbed = [run_drafter(name, *known[name], requests, truth) for name in names]
    again, moved = (sum(column) for column in zip(*disturbed))
    # Few short answers may all end before one that leaves has handed them over.
    check(arguments.drafters or (again > 0 and (moved > 0 or arguments.requests < 100)),
          f"no answer felt the end of a worker: {disturbed} began again and moved")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--draft", help="the draft model; without it the model guesses for itself")
    parser.add_argument("--drafters")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("PENSTOCK_SEED") or random.randrange(10**6)))
    options = parser.parse_args()
    need_model()
    main(lambda: test(options))
