#!/usr/bin/env python3
# tags: integration router
# limit: 120
"""Two routers that know nothing of each other share the workers: credits follow use, one's death costs only its own streams, and
an Idempotency-Key gives the same text from either. On the tiny model."""
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, Cluster, check, free_port, main, run_parts  # noqa: E402

PROMPT = "some words to begin with, and a few more " * 4


class TwoRouters(Cluster):
    """The cluster's own router is `a`; `at(b)` speaks to the other one."""

    def __init__(self, **more):
        self.ports_b = (free_port(), free_port())
        self.b = None
        super().__init__(0, 0, wait=False, **more)
        self.ports_a = (self.http_port, self.control_port)
        self.command_b = [a.replace(str(self.http_port), str(self.ports_b[0])).replace(str(self.control_port), str(self.ports_b[1]))
                          for a in self.router.popen.args[1:]]
        self.start_b()
        urls = ",".join(f"tcp://127.0.0.1:{port}" for port in (self.control_port, self.ports_b[1]))
        self.workers = [self.start_worker(role, [f"worker.routers={urls}"]) for role in ("prefill", "decode")]
        for side in "ab":
            self.at(side).wait_ready(1, 1)

    def start_b(self):
        self.b = self.start("router", self.command_b, name="router-b" + str(len(self.processes)))

    def at(self, side):
        self.http_port, self.control_port = self.ports_a if side == "a" else self.ports_b
        return self

    def request_at(self, side, sent, headers=None):
        port = (self.ports_a if side == "a" else self.ports_b)[0]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(sent), dict({"Content-Type": "application/json"}, **(headers or {})))
        response = connection.getresponse()
        return response.status, json.loads(response.read())

    def credits(self, side):
        return [w["credits_pages"] for w in self.at(side).state()["workers"] if w["role"] == "decode"][0]


class Load:
    """Requests at one router on several lanes."""

    def __init__(self, cluster, side, sent, lanes):
        self.done, self.codes = threading.Event(), []

        def lane():
            while not self.done.is_set():
                self.codes.append(cluster.request_at(side, sent)[0])
        self.threads = [threading.Thread(target=lane) for _ in range(lanes)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        for thread in self.threads:
            thread.join()
        check(set(self.codes) == {200}, f"{set(self.codes)}")


def keys_give_the_same_text(cluster, sent):
    sent = dict(sent, temperature=1.5)
    texts = {}
    for key in ("one", "two"):
        got = {json.dumps(cluster.request_at(side, sent, {"Idempotency-Key": key})[1]["choices"]) for side in "abab"}
        check(len(got) == 1, f"key {key}: {got}")
        texts[key] = got.pop()
    check(texts["one"] != texts["two"], "two keys give two texts")
    without = {json.dumps(cluster.request_at(side, sent)[1]["choices"]) for side in "ab"}
    check(len(without) == 2, "without a key each text is its own")
    seeded = [cluster.request_at(side, dict(sent, seed=5), {"Idempotency-Key": side})[1]["choices"] for side in "ab"]
    check(seeded[0] == seeded[1], "a seed wins over the key")


def credits_follow_use(cluster, sent, pages):
    cluster.until("equal parts", lambda: abs(cluster.credits("a") - pages / 2) < pages / 16 and abs(cluster.credits("b") - pages / 2) < pages / 16)
    with Load(cluster, "a", sent, 6):
        cluster.until("a has more", lambda: cluster.credits("a") > pages * 0.6 and cluster.credits("b") < pages * 0.4)
        check(cluster.credits("a") + cluster.credits("b") <= pages, "no page is promised twice")
        code, answer = cluster.request_at("b", sent)
        check(code == 200, f"the idle router still serves: {answer}")
    with Load(cluster, "b", sent, 6):
        cluster.until("b has more", lambda: cluster.credits("b") > pages * 0.6)


def a_death_costs_its_own_streams(cluster, sent):
    """The other router's streams go on, and it gets all the credits."""
    ended = {}

    def stream(side):
        connection = http.client.HTTPConnection("127.0.0.1", (cluster.ports_a if side == "a" else cluster.ports_b)[0], timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(dict(sent, stream=True, max_tokens=400)), {"Content-Type": "application/json"})
        response = connection.getresponse()
        try:
            for line in response:
                if line.startswith(b"data: "):
                    began[side].set()
                    ended[side] = line.strip()
        except (http.client.HTTPException, OSError) as e:
            ended[side] = e
    began = {side: threading.Event() for side in "ab"}
    threads = [threading.Thread(target=stream, args=(side,)) for side in "ab"]
    for thread in threads:
        thread.start()
    for event in began.values():
        check(event.wait(60), "both streams begin")
    cluster.b.kill()
    cluster.b.popen.wait()
    for thread in threads:
        thread.join()
    check(ended["a"] == b"data: [DONE]", f"a's stream: {ended['a']}")
    check(ended["b"] != b"data: [DONE]", "b's stream was cut")
    pages = [w["pages"] for w in cluster.at("a").state()["workers"] if w["role"] == "decode"][0]
    cluster.until("a has all credits", lambda: cluster.credits("a") >= pages * 0.95)
    cluster.at("a").check_idle()  # nothing of b's is left on the workers
    cluster.start_b()
    cluster.at("b").wait_ready(1, 1)
    check(cluster.request_at("b", sent)[0] == 200, "b serves again")


def more_than_a_part_fits(model):
    """A request that needs more pages than a router's part of them is served all the same, at a router that has nothing else there."""
    with TwoRouters(model=model, engine=["engine.kv_bytes=1MiB"]) as cluster:
        cluster.until("equal parts", lambda: cluster.credits("a") <= 17 and cluster.credits("b") <= 17)
        for side in "ab":
            part = cluster.credits(side)
            answer = cluster.request_at(side, {"model": cluster.model_name(), "prompt": PROMPT * 12, "max_tokens": 5, "ignore_eos": True})
            check(answer[0] == 200, f"{answer}")
            check(answer[1]["usage"]["prompt_tokens"] / 64 > part, f"{answer[1]['usage']} fits {part} pages")
        cluster.check_idle()


def test():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), model], check=True)
        with TwoRouters(model=model, router=["policy.local_prefill_tokens=0"], engine=["engine.max_sequences=8"],
                        decode_set=["faults=worker.stall:1:10"]) as cluster:
            sent = {"model": cluster.model_name(), "prompt": PROMPT, "max_tokens": 40, "ignore_eos": True, "temperature": 0}
            pages = cluster.state()["workers"][0]["pages"]
            for part, arguments in ((keys_give_the_same_text, (sent,)), (credits_follow_use, (sent, pages)),
                                    (a_death_costs_its_own_streams, (sent,))):
                run_parts([part], cluster, *arguments)
        more_than_a_part_fits(model)


main(test)
