#!/usr/bin/env python3
# tags: integration
# limit: 400
"""Field cases of the prefill/decode split and of the KV cache by name, on a tiny model: whatever happens between the two workers, answers are those of
one worker alone, and every page comes back."""
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, SLOW, Cluster, check, free_port, hashes, main, together  # noqa: E402
from streams import PATIENT, metric, text_of  # noqa: E402

EOS, BYTES = 0, 3  # ids of the tiny model: end of text, and the token of byte 0
WORDS = "river stone winter lantern copper bridge garden silver thunder market".split()


def text(seed, count):
    return " ".join(WORDS[(seed * 7 + i * i + i * seed) % len(WORDS)] for i in range(count))


class Split(Cluster):
    """One prefill and one decode worker unless told otherwise; every prompt is computed remotely."""
    model_path = None

    def __init__(self, prefill=1, decode=1, router=(), engine=(), **more):
        super().__init__(prefill, decode, model=Split.model_path, router=PATIENT["router"] + ["policy.local_prefill_tokens=0"] + list(router),
                         engine=PATIENT["engine"] + list(engine), **more)

    def ask(self, prompt, **parameters):
        answer = self.complete(prompt, **dict(dict(temperature=0, max_tokens=12, ignore_eos=True, logits_hash=True), **parameters))
        return answer["choices"][0]["text"], answer["choices"][0]["finish_reason"], tuple(hashes(answer)), answer["usage"]

    def workers_of(self, role):
        return [w for w in self.state()["workers"] if w["role"] == role]

    def sum(self, role, field):
        """A counter of the heartbeats, after one more of them."""
        time.sleep(0.6)
        return sum(w[field] for w in self.workers_of(role))

    def comes_to(self, role, field, wanted):
        """A counter of the heartbeats has this value in the end."""
        def it_does():
            found = sum(w[field] for w in self.workers_of(role))
            check(found == wanted, f"{found}, not {wanted}")
            return True
        self.until(f"{field} of {role} workers", it_does, 15)
        check(self.sum(role, field) == wanted, f"{field} of {role} workers went on behind {wanted}")

    def idle_within(self, what, seconds):
        begun = time.monotonic()
        self.check_idle(seconds)
        return f"{what}: idle after {time.monotonic() - begun:.1f} s"

    def leave(self, body, seconds, events=0):
        """A client that goes after so long, or after so many events."""
        connection = http.client.HTTPConnection(self.router_host, self.http_port, timeout=seconds if not events else 60 * SLOW)
        try:
            connection.request("POST", "/v1/completions", json.dumps(dict(body, model=self.model_name(), stream=True)),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            for _ in range(2 * events):
                response.readline()
        except OSError:
            pass
        finally:
            connection.close()


def b065_b085_a_prefix_that_decode_holds_is_neither_computed_nor_sent():
    prompts = [text(1, 60) + " " + text(10 + i, 20 + i) for i in range(3)]
    with Split(engine=["engine.prefix_reuse=false"]) as cluster:
        solo = [cluster.ask(p)[:3] for p in prompts]
        bytes_cold = cluster.sum("prefill", "handoff_bytes")
        cluster.check_idle()
    with Split() as cluster:
        for _ in range(2):
            for i, p in enumerate(prompts):
                got = cluster.ask(p)
                check(got[:3] == solo[i], f"with a known prefix: {got} is not {solo[i]}")
                check(got[3]["prompt_tokens_details"]["cached_tokens"] < got[3]["prompt_tokens"], f"more hits than there may be: {got[3]}")
        sent = cluster.sum("prefill", "handoff_bytes")
        check(sent < 2 * bytes_cold * 0.8, f"{sent} bytes were sent; without reuse it would be {2 * bytes_cold}")
        cluster.check_idle()


def b070_whole_prompts_that_are_known():
    with Split() as cluster:
        for count in (63, 64, 65, 128, 129):
            first, second = cluster.ask([20 + i % 200 for i in range(count)]), cluster.ask([20 + i % 200 for i in range(count)])
            check(first[:3] == second[:3], f"{count} tokens: {second} is not {first}")
            hits = second[3]["prompt_tokens_details"]["cached_tokens"]
            check(hits <= count - 1, f"{count} tokens: {hits} of them are hits")
        cluster.check_idle()


def b077_the_first_token_already_ends_the_request():
    # One chunk and no known prefix: pages that are whole before the last chunk may be on their way before the end is known.
    prompt = text(3, 20)
    with Split(engine=["engine.prefix_reuse=false"]) as cluster:
        sent = cluster.sum("prefill", "handoff_bytes")
        ends = {"max_tokens": dict(max_tokens=1), "eos": dict(logit_bias={str(EOS): 100}, ignore_eos=False),
                "stop id": dict(logit_bias={"77": 100}, stop_token_ids=[77])}
        for name, parameters in ends.items():
            _, finish, bits, usage = cluster.ask(prompt, **parameters)
            check(usage["completion_tokens"] == 1 and len(bits) == 1, f"{name}: {usage}")
            check(finish == ("length" if name == "max_tokens" else "stop"), f"{name}: {finish}")
            events = cluster.stream("/v1/completions", dict(dict(model=cluster.model_name(), prompt=prompt, max_tokens=9, temperature=0), **parameters))
            check(len([e for e in events[:-1] if e["choices"] and e["choices"][0]["finish_reason"]]) == 1, f"{name}: {events}")
            cluster.check_idle(10)
        check(cluster.sum("prefill", "handoff_bytes") == sent, "pages of a request that had ended were sent")
        usage = cluster.ask(prompt, logit_bias={str(EOS): 100}, max_tokens=3)[3]
        check(usage["completion_tokens"] == 3, f"ignore_eos: {usage}")
        usage = cluster.ask(prompt, logit_bias={str(EOS): 100}, ignore_eos=False, min_tokens=3, max_tokens=8)[3]
        check(usage["completion_tokens"] == 4, f"min_tokens: {usage}")
        got = cluster.ask(prompt, logit_bias={str(BYTES + ord("q")): 100}, stop=["q"])
        check(got[:2] == ("", "stop") and got[3]["completion_tokens"] == 1, f"the stop string is the first token's text: {got}")
        cluster.check_idle(10)


def b078_aborts_in_every_phase():
    with Split(prefill_set=["faults=handoff.delay:1:300", "engine.chunk_tokens=32"], decode_set=["faults=worker.stall:1:5"],
               engine=["engine.prefix_reuse=false"]) as cluster:
        solo = cluster.ask(text(5, 60))[:3]
        draw = random.Random(7)
        for _ in range(4):
            together([lambda s=draw.random() * 0.8, i=i: cluster.leave(dict(prompt=text(30 + i, 60), max_tokens=200, ignore_eos=True), s)
                      for i in range(10)])
        together([lambda i=i: cluster.leave(dict(prompt=text(30 + i, 60), max_tokens=200, ignore_eos=True), 0, 1 + i) for i in range(6)])
        print(cluster.idle_within("46 aborts", 30))
        got = cluster.ask(text(5, 60))[:3]
        check(got == solo, f"after aborts: {got} is not {solo}")
        check(sum(w["steps"] for w in cluster.state()["workers"]) > 0, "nothing ran")


def b079_decode_refuses_what_prefill_computes():
    truth = None
    for name, decode_set in (("plain", []), ("refuses", ["faults=ticket.refuse:0.5"]), ("small queue", ["engine.max_sequences=1", "queue.waiting=0"]),
                             ("smaller context", ["engine.context=700"])):
        with Split(decode_set=decode_set) as cluster:
            got = together([lambda i=i: cluster.ask(text(40 + i, 50))[:3] for i in range(8)])
            truth = truth or got
            check(got == truth, f"{name}: {got} is not {truth}")
            print(cluster.idle_within(name, 30))


def b080_pages_of_an_abort_are_not_written_late():
    delayed = ["faults=handoff.delay:1:150"]
    with Split(engine=["engine.prefix_reuse=false"], decode_set=["engine.kv_bytes=768KiB"]) as cluster:
        solo = cluster.ask(text(60, 90))[:3]
    with Split(engine=["engine.prefix_reuse=false"], prefill_set=delayed, decode_set=["engine.kv_bytes=768KiB"]) as cluster:
        for i in range(12):
            cluster.leave(dict(prompt=text(70 + i, 90), max_tokens=20, ignore_eos=True), 0.02 + 0.02 * i)
            got = cluster.ask(text(60, 90))[:3]
            check(got == solo, f"round {i}: {got} is not {solo}")
        cluster.check_idle(10)


def b081_prefill_gives_up_after_decode_has_reserved():
    truth = None
    for name, faults in (("plain", []), ("refuses", ["faults=ticket.refuse:0.4"]), ("has no pages", ["faults=pool.exhaust:0.4", "queue.waiting_time=1s"])):
        with Split(2, 1, prefill_set=faults) as cluster:
            got = together([lambda i=i: cluster.ask(text(80 + i, 50))[:3] for i in range(12)])
            truth = truth or got
            check(got == truth, f"{name}: {got} is not {truth}")
            print(cluster.idle_within(name, 30))


def b083_b089_a_worker_restarted_at_the_same_address():
    port = free_port()
    with Split(2, 1, decode_set=[f"fabric.port={port}"]) as cluster:
        solo = cluster.ask(text(90, 60))[:3]
        for i in range(6):
            role = ("decode", "prefill")[i % 2]
            victim = cluster.of(role)[0]
            victim.kill()
            victim.popen.wait()
            cluster.workers.remove(victim)
            cluster.workers.append(cluster.start_worker(role))
            if role == "decode":  # until it is there, nobody can serve
                cluster.wait_ready(2, 1)
            got = cluster.ask(text(90, 60))[:3]
            check(got == solo, f"after restart {i} of a {role} worker: {got} is not {solo}")
        cluster.wait_ready(2, 1)
        cluster.check_idle()


def b084_workers_with_other_pages_are_not_paired():
    """Other KV types are refused when they join: kv_types.py."""
    with Split() as cluster:
        solo = cluster.ask(text(95, 60))[:3]
    with Split(prefill_set=["engine.page_tokens=32"]) as cluster:
        got = cluster.ask(text(95, 60))[:3]
        check(got == solo, f"{got} is not {solo}")
        check(cluster.sum("prefill", "prefill_tokens") == 0, "the prefill worker was used")
        check(metric(cluster, "penstock_fallbacks_total", reason="no_prefill_worker") == 1, "the fallback is not counted")
        cluster.check_idle()


def b086_usage_of_two_workers():
    with Split() as cluster:
        usages = []
        for i in range(3):
            usages += [cluster.ask(text(100 + i, 60))[3], cluster.ask(text(100 + i, 60))[3], cluster.ask(text(100 + i, 60) + " and on")[3]]
        for i, usage in enumerate(usages):
            hits = usage["prompt_tokens_details"]["cached_tokens"]
            check((hits == 0) == (i == 0) or i % 3 or hits < 64, f"request {i}: {usage}")
            check(hits < usage["prompt_tokens"], f"request {i}: {usage}")
            check(hits > 0 or i % 3 == 0, f"request {i}, a repetition: {usage}")
        prompt = sum(u["prompt_tokens"] for u in usages)
        hits = sum(u["prompt_tokens_details"]["cached_tokens"] for u in usages)
        cluster.comes_to("prefill", "prefill_tokens", prompt - hits)
        cluster.comes_to("decode", "decode_tokens", sum(u["completion_tokens"] - 1 for u in usages))
        check(cluster.sum("decode", "prefill_tokens") == 0, "the decode worker computed prompts")
        cluster.check_idle()


def b087_long_prompts_go_to_prefill_by_default():
    with Cluster(1, 1, model=Split.model_path, router=PATIENT["router"], engine=PATIENT["engine"]) as cluster:
        for i in range(20):
            cluster.complete(text(120 + i, 40), max_tokens=3, ignore_eos=True)
        check(metric(cluster, "penstock_fallbacks_total") == 0, "a prompt did not go the usual way")
        cluster.check_idle()
        cluster.until("the prefill worker says what it did", lambda: [w for w in cluster.state()["workers"] if w["role"] == "prefill" and
                                                                      w["prefill_tokens"] > 0 and w["handoff_bytes"] > 0], 15)
        time.sleep(0.6)
        computed = [w["prefill_tokens"] for w in cluster.state()["workers"] if w["role"] == "decode"]
        check(computed == [0], f"the decode worker computed {computed} tokens of prompts")


def b088_equal_ids_of_clients():
    with Split(decode_set=["faults=worker.stall:1:5"]) as cluster:
        bodies = [dict(model=cluster.model_name(), prompt=text(150 + i, 40), max_tokens=20, temperature=0, ignore_eos=True) for i in range(8)]
        solo = [cluster.json("POST", "/v1/completions", b)["choices"][0]["text"] for b in bodies]
        same = {"X-Request-Id": "same"}
        jobs = [lambda b=b: cluster.json("POST", "/v1/completions", b, headers=same)["choices"][0]["text"] for b in bodies]
        got = together(jobs + [lambda: cluster.leave(dict(prompt=text(170, 40), max_tokens=400, ignore_eos=True), 0.2)])[:-1]
        check(got == solo, f"with equal ids: {got} is not {solo}")
        for strange in ("x" * 3000, "../../etc", "a b\tc", "\u00e9"):
            code, _, _ = cluster.request("POST", "/v1/completions", bodies[0], headers={"X-Request-Id": strange})
            check(code in (200, 400, 431), f"id {strange[:20]!r}: status {code}")
        cluster.check_idle()


def test():
    cases = [(name, case) for name, case in sorted(globals().items()) if name.startswith("b0")]
    chosen = [c for c in cases if len(sys.argv) < 2 or sys.argv[1] in c[0]]
    with tempfile.TemporaryDirectory() as folder:
        Split.model_path = os.path.join(folder, "tiny.gguf")
        subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), Split.model_path], check=True)
        for name, case in chosen:
            print(name, flush=True)
            case()


main(test)
