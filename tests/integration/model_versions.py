#!/usr/bin/env python3
# tags: integration router
# limit: 120
"""Two versions of the model at the same time: who may join, how new requests are split, and that each stays within its version;
over workers without an engine."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fakes import FakeCluster  # noqa: E402
from cluster import BUILD, SLOW, check, main, run_parts  # noqa: E402


class Versions(FakeCluster):
    """A router that reads its versions from a file; `own` and `other` are the weights of the fakes' two versions."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "router.cfg")
        self.write("")
        super().__init__(router=["router.retry_budget=2s"])
        command = self.router.popen.args[1:]
        self.router.stop()
        self.router = self.start("router", command + ["--config", self.path], name="router-with-file")
        self.until("it answers", lambda: self.request("GET", "/health")[0] == 200)
        stranger = self.fake("decode", "stranger", wait=False, weights=1)
        stranger.expected_death = True
        check(stranger.popen.wait(30 * SLOW) == 6, "another version may not join by itself")
        self.other, self.own = re.search(r'other weights \("fake", (\w{32})\) than this router\'s ".*", (\w{32}), and policy.versions', stranger.text()).groups()

    def write(self, text):
        with open(self.path, "w") as f:
            f.write(text)

    def split(self, own, other):
        before = self.router.text().count("reload done")
        self.write(f'policy: {{ versions = ["{self.own}:{own}", "{self.other}:{other}"]; }};')
        self.router.kill(signal.SIGHUP)
        self.until("the split is read", lambda: self.router.text().count("reload done") > before)

    def ask(self, **more):
        headers = more.pop("headers", None)
        body = dict({"model": self.model_name(), "prompt": "net " * 100, "max_tokens": 3, "temperature": 0, "ignore_eos": True}, **more)
        code, _, data = self.request("POST", "/v1/completions", body, headers=headers)
        return code, json.loads(data)

    def versions_of(self, count, headers=None):
        """The fingerprints of so many answers."""
        done = [self.ask(headers=headers) for _ in range(count)]
        check({code for code, _ in done} == {200}, f"{[d for d in done if d[0] != 200][:1]}")
        return [answer["system_fingerprint"] for _, answer in done]


def the_split(cluster, old, new):
    cluster.split(75, 25)
    found = cluster.versions_of(40)
    check(found.count(new) in range(8, 13), f"{found.count(new)} of 40 were on the new version")
    keyed = {key: set(cluster.versions_of(4, headers={"Idempotency-Key": key})) for key in "abcdefgh"}
    check(all(len(v) == 1 for v in keyed.values()), f"a key stays on its version: {keyed}")
    cluster.split(0, 100)
    check(set(cluster.versions_of(10)) == {new}, "everything new is on the new version")
    cluster.split(100, 0)
    check(set(cluster.versions_of(10)) == {old}, "and back")
    for name in (old, new):
        check(cluster.metric(f'penstock_version_requests_total{{fingerprint="{name}"}}') > 10, name)


def each_stays_within_its_version(cluster, old, new):
    """Prefill and decode are of one version, and so is the worker that goes on when one dies."""
    for share, version, mark in (((1, 0), old, "old"), ((0, 1), new, "new")):
        cluster.split(*share)
        code, answer = cluster.ask()
        line = cluster.json("GET", "/requests/" + answer["id"])
        check((line["prefill_worker"], line["decode_worker"][:3]) == ("p-" + mark, mark), f"{line}")
    cluster.split(1, 0)
    answers = []
    client = threading.Thread(target=lambda: answers.append(cluster.ask(max_tokens=600)))
    client.start()
    cluster.until("it runs", lambda: [w for w in cluster.state()["workers"] if w["role"] == "decode" and w["sequences_running"]])
    cluster.split(0, 1)  # what runs is not touched by it
    busy = [w["name"] for w in cluster.state()["workers"] if w["role"] == "decode" and w["sequences_running"]][0]
    victim = [p for p in cluster.workers if p.worker == busy][0]
    victim.expected_death = True
    victim.kill()
    client.join()
    code, answer = answers[0]
    line = cluster.json("GET", "/requests/" + answer["id"])
    check(code == 200 and line["attempts"] == 2 and line["decode_worker"] in ("old-1", "old-2") and line["decode_worker"] != busy, f"{line}")
    check(answer["system_fingerprint"] == old and answer["usage"]["completion_tokens"] == 600, f"{answer}")


def a_version_that_is_gone(cluster, old, new):
    """New requests go to the other version if it has a share, counted; one with tokens of a version that is gone ends with an error."""
    cluster.split(9999, 1)
    events = []

    def leave(event):
        events.append(event)
        if len(events) == 3:
            for p in cluster.workers:
                if p.worker.startswith("old"):
                    p.expected_death = True
                    p.kill()
    got = cluster.stream("/v1/completions", {"model": cluster.model_name(), "prompt": "net " * 100, "max_tokens": 400, "ignore_eos": True}, on_event=leave)
    check(got[-1]["error"]["code"] == "worker_failed", f"{got[-1]}")
    check(set(cluster.versions_of(5)) == {new}, "the other version serves")
    check(cluster.metric('penstock_fallbacks_total{reason="other_version"}') >= 5, "it is counted")
    cluster.split(1, 0)
    check(cluster.ask()[1]["error"]["code"] == "no_worker", "a share of 0 gets nothing new")


class Further(FakeCluster):
    """A router whose second model, "tiny", reads its versions from a file."""

    def __init__(self, folder):
        self.path, self.tiny = os.path.join(folder, "further.cfg"), os.path.join(folder, "tiny.gguf")
        subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), self.tiny], check=True)
        self.write([])
        super().__init__(router=["router.retry_budget=2s"])
        command = self.router.popen.args[1:]
        self.router.stop()
        self.router = self.start("router", command + ["--config", self.path], name="router-with-models")
        self.until("it answers", lambda: self.request("GET", "/health")[0] == 200)
        self.own = [m for m in self.state()["models"] if m["name"] == "tiny"][0]["weights"]
        self.other = "%016x%016x" % (int(self.own[:16], 16) + 1, int(self.own[16:], 16) + 1)  # as fake_worker.c makes them

    def write(self, versions):
        with open(self.path, "w") as f:
            f.write(f'models = ({{ file = "{self.tiny}"; name = "tiny"; versions = {json.dumps(versions)}; }});')

    def reload(self, versions, expected):
        before = len(self.router.text())
        self.write(versions)
        self.router.kill(signal.SIGHUP)
        self.until(f"the log says {expected}", lambda: expected in self.router.text()[before:])
        return self.router.text()[before:]

    def versions_of(self, model, count):
        body = {"model": model, "prompt": "net " * 100, "max_tokens": 3, "ignore_eos": True}
        return {self.json("POST", "/v1/completions", body)["system_fingerprint"] for _ in range(count)}


def further_models(folder):
    """The versions of a model of the list `models` are read again as those of router.model are, and touch no other model."""
    with Further(folder) as cluster:
        cluster.fake("decode", "main-1")
        main = cluster.versions_of(cluster.model_name(), 1)
        stranger = cluster.fake("decode", "stranger", wait=False, weights=1, model=cluster.tiny)
        stranger.expected_death = True
        check(stranger.popen.wait(30 * SLOW) == 6, "another version of tiny may not join by itself")
        said = cluster.reload([f"{cluster.own}:1", f"{cluster.other}:0"], "reload done")
        check("reload models[0].versions is taken" in said and "needs a restart" not in said, said)
        for number, name in ((0, "tiny-old"), (1, "tiny-new")):
            cluster.fake("decode", name, weights=number, numeric=number + 1, model=cluster.tiny)
        old, new = "fp_" + cluster.own[:16], "fp_" + cluster.other[:16]
        check(cluster.versions_of("tiny", 5) == {old}, "its own")
        cluster.reload([f"{cluster.own}:0", f"{cluster.other}:1"], "reload done")
        check(cluster.versions_of("tiny", 5) == {new}, "the other one")
        check(cluster.versions_of(cluster.model_name(), 5) == main, "the first model is as before")
        for wrong, sentence in (([f"{cluster.other}:0"], "models[0].versions gives no version a share"), (["x"], 'models[0].versions has "x"')):
            check(sentence in cluster.reload(wrong, "reload refused, nothing changed: "), sentence)
        check(cluster.versions_of("tiny", 5) == {new}, "it stays")


def test():
    with tempfile.TemporaryDirectory() as folder, Versions(folder) as cluster:
        cluster.write('policy: { versions = ["nonsense"]; };')
        cluster.router.kill(signal.SIGHUP)
        cluster.until("a bad list is refused", lambda: 'policy.versions has "nonsense"' in cluster.router.text())
        cluster.split(1, 1)
        for mark, number in (("old", 0), ("new", 1)):
            cluster.fake("prefill", "p-" + mark, weights=number, numeric=number + 1)
            for i in ("1", "2"):
                cluster.fake("decode", f"{mark}-{i}", weights=number, numeric=number + 1)
        old, new = "fp_" + cluster.own[:16], "fp_" + cluster.other[:16]
        run_parts((the_split, each_stays_within_its_version, a_version_that_is_gone), cluster, old, new)
    with tempfile.TemporaryDirectory() as folder:
        further_models(folder)


main(test)
