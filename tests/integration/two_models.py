#!/usr/bin/env python3
# tags: integration router
# limit: 240
"""Two models behind one router: requests go by `model`, each with its own tokenizer, template, context, workers, line and credits;
while one model has no worker left, or is full, the other one serves as if it were alone."""
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fakes import FakeCluster  # noqa: E402
from cluster import BUILD, SLOW, Cluster, check, hashes, main, need_model, together  # noqa: E402
from streams import metric, text_of  # noqa: E402

PROMPT = "some words to begin with, and a few more " * 6
GREEDY = dict(prompt=PROMPT, max_tokens=24, temperature=0, ignore_eos=True)
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<assistant>"


class Models(Cluster):
    """The default model with two workers of each kind, and "tiny" with as many."""

    def __init__(self, folder, tiny):
        self.tiny = tiny
        template = os.path.join(folder, "template.jinja")
        with open(template, "w") as file:
            file.write(TEMPLATE)
        further = f'models=( {{ file = "{tiny}"; name = "tiny"; aliases = ["small"]; chat_template = "{template}"; }} )'
        super().__init__(2, 2, wait=False, engine=["engine.kv_bytes=48MiB"],
                         router=["router.model_name=main", further, "policy.local_prefill_tokens=8", "router.retry_budget=3s",
                                 "admission.interactive_queue=4"])
        for role in ("prefill", "decode"):
            for _ in range(2):
                self.tiny_worker(role)
        self.wait_alive("main", 4)
        self.wait_alive("tiny", 4)

    def tiny_worker(self, role, *extra):
        worker = self.start_worker(role, [f"engine.model={self.tiny}", "engine.kv_bytes=8MiB", *extra])
        worker.tiny = True
        self.workers.append(worker)
        return worker

    def alive(self, model):
        return [w for w in self.state()["workers"] if w["model"] == model and w["state"] == "alive"]

    def wait_alive(self, model, count):
        self.until(f"{count} workers of {model}", lambda: len(self.alive(model)) == count)

    def served(self, model):
        return [m for m in self.state()["models"] if m["name"] == model][0]

    def ask(self, model, expect=200, **more):
        return self.json("POST", "/v1/completions", dict(GREEDY, model=model, **more), expect=expect)

    def kill_tiny(self):
        for worker in self.workers:
            if getattr(worker, "tiny", False) and worker.alive():
                worker.kill()


def names(cluster):
    listed = {m["id"]: m["max_model_len"] for m in cluster.json("GET", "/v1/models")["data"]}
    check(set(listed) == {"main", "tiny", "small"}, f"{listed}")
    for name, length in listed.items():
        check(cluster.json("GET", "/v1/models/" + name)["max_model_len"] == length, name)
    check(listed["tiny"] == listed["small"] != listed["main"], f"each model has its own context: {listed}")
    refusal = cluster.ask("huge", expect=404)["error"]
    check(refusal["code"] == "model_not_found" and 'serves "main", "tiny".' in refusal["message"], f"{refusal}")
    check(cluster.ask("small")["model"] == "tiny", "an alias answers with the model's name")


def both_at_once(cluster):
    """Answers do not depend on what the other model does, and each request stays among its model's workers."""
    alone = {model: hashes(cluster.ask(model, logits_hash=True)) for model in ("main", "tiny")}
    check(alone["main"] != alone["tiny"], "two models, two answers")
    wanted = ["main", "tiny"] * 4
    answers = together([lambda m=m: cluster.ask(m, logits_hash=True) for m in wanted])
    workers = {w["name"]: w["model"] for w in cluster.state()["workers"]}
    for model, answer in zip(wanted, answers):
        check(answer["model"] == model and hashes(answer) == alone[model], f"{model}: {answer}")
        line = cluster.json("GET", "/requests/" + answer["id"])
        check(workers[line["decode_worker"]] == workers[line["prefill_worker"]] == model, f"{line}")
    return alone


def tokens_and_templates(cluster):
    """A text has as many tokens as its model's tokenizer makes of it; the configured template is used."""
    counts = {m: cluster.ask(m, max_tokens=1)["usage"]["prompt_tokens"] for m in ("main", "tiny")}
    check(counts["main"] != counts["tiny"], f"{counts}")
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    by_chat = cluster.json("POST", "/v1/chat/completions", dict(chat, model="tiny"))["usage"]["prompt_tokens"]
    by_text = cluster.ask("tiny", prompt="<user>hi<assistant>", max_tokens=1)["usage"]["prompt_tokens"]
    check(by_chat == by_text, f"the template of the configuration gives {by_chat} tokens, its text {by_text}")
    too_long = cluster.ask("tiny", prompt=[1] * (cluster.served("tiny")["context"] + 1), expect=400)["error"]
    check(str(cluster.served("tiny")["context"]) in too_long["message"], f"{too_long}")


def one_is_killed(cluster, alone):
    """The workers of tiny die under both models' streams: its requests end with an error, those of main with their text."""
    events, ended = [], []
    several = threading.Event()

    def note(event):
        events.append(event)
        if len(events) >= 8:
            several.set()

    def stream(model):
        ended.append((model, cluster.stream("/v1/completions", dict(GREEDY, model=model, max_tokens=200), on_event=note)))
    threads = [threading.Thread(target=stream, args=(m,)) for m in ("main", "tiny", "main")]
    for thread in threads:
        thread.start()
    check(several.wait(60 * SLOW), "streams begin")
    cluster.kill_tiny()
    began = time.monotonic()
    while any(t.is_alive() for t in threads) or time.monotonic() - began < 1:
        check(hashes(cluster.ask("main", logits_hash=True)) == alone["main"], "main goes on")
    for model, got in ended:
        if model == "main":
            check(len(text_of(got)) > 0 and cluster.served("main")["ready"], "main's streams end well")
        else:
            check(got[-1] == "[DONE]" or "error" in got[-1], f"{got[-1]}")
    refused = cluster.ask("tiny", expect=503)["error"]
    check(refused["code"] == "no_worker" and '"tiny"' in refused["message"], f"{refused}")
    check(not cluster.served("tiny")["ready"] and cluster.request("GET", "/ready")[0] == 200, "the router is ready for main")
    for role in ("prefill", "decode"):
        cluster.tiny_worker(role)
    cluster.wait_alive("tiny", 2)
    check(hashes(cluster.ask("tiny", logits_hash=True)) == alone["tiny"], "tiny is back with the same answer")


def metrics(cluster):
    """What the router knows of a model's requests is told by model; main lost nobody, tiny lost four."""
    text = cluster.request("GET", "/metrics")[2].decode()
    for model in ("main", "tiny"):
        for name in ("penstock_prefill_seconds_count", "penstock_handoff_seconds_count", "penstock_handoff_bytes_total",
                     "penstock_queue_seconds_count", "penstock_version_requests_total"):
            check(metric(cluster, name, model=model) > 0, f"{name} of {model}")
        check('penstock_migration_pause_seconds_count{model="%s"} 0' % model in text, model)
    lost = [[metric(cluster, f"penstock_{name}_total", model=m) for name in ("workers_lost", "retries")] for m in ("main", "tiny")]
    check(lost[0] == [0, 0] and lost[1][0] == 4, f"{lost}")


def one_is_full(cluster):
    """A line that is full is full for its model alone."""
    cluster.kill_tiny()
    cluster.until("tiny is gone", lambda: not cluster.alive("tiny"))
    cluster.tiny_worker("decode", "engine.max_sequences=1")
    cluster.wait_alive("tiny", 1)
    codes, lock = [], threading.Lock()

    def push():
        code = cluster.request("POST", "/v1/completions", dict(GREEDY, model="tiny", max_tokens=1500))[0]
        with lock:
            codes.append(code)
    threads = [threading.Thread(target=push) for _ in range(12)]
    for thread in threads:
        thread.start()
    cluster.until("its line is full", lambda: 429 in codes)
    check(cluster.served("tiny")["requests_waiting"] > 0 and cluster.served("main")["requests_waiting"] == 0, "they wait in its line")
    check(cluster.ask("main", max_tokens=2)["usage"]["completion_tokens"] == 2, "main is not held up")
    for thread in threads:
        thread.join()
    check(set(codes) == {200, 429}, f"{codes}")


def alerts_name_their_model(folder, tiny):
    """Over workers without an engine: the line of tiny waits for a place, and the sentence says whose line it is."""
    with FakeCluster(router=["router.model_name=main", f'models=( {{ file = "{tiny}"; name = "tiny"; }} )']) as cluster:
        cluster.fake("decode", "d-main")
        cluster.fake("decode", "d-tiny", sequences=1, step_ms=20, model=tiny)
        together([lambda: cluster.json("POST", "/v1/completions", dict(GREEDY, model="main"))])

        def ask():
            cluster.json("POST", "/v1/completions", dict(GREEDY, model="tiny", max_tokens=100))
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()

        def told(code):
            return [a["text"] for a in cluster.state()["alerts"] if a["code"] == code]
        lines = cluster.until("an alert tells of the line", lambda: told("decode_bottleneck"))
        check(len(lines) == 1 and lines[0].startswith("tiny: Decode is the bottleneck: "), f"{lines}")
        check(sorted(text.split(":")[0] for text in told("no_prefill")) == ["main", "tiny"], f"{told('no_prefill')}")
        lines = {m["name"]: m["requests_waiting"] for m in cluster.state()["models"]}
        check(lines["tiny"] > 0 and lines["main"] == 0, f"{lines}")
        for thread in threads:
            thread.join()
        cluster.until("it is calm again", lambda: not told("decode_bottleneck"))


def bad_configurations(folder, tiny):
    for setting, sentence in ((f'models=({{ file = "{tiny}"; name = "main"; }})', 'two models are called "main"'),
                              (f'models=({{ file = "{need_model()}"; }})', "have the same weights"),
                              ("models=({ name = \"x\"; })", "models[0] has no file"),
                              (f'models=({{ file = "{tiny}"; chat_template = "{folder}/none"; }})', "cannot open the chat template")):
        done = subprocess.run([os.path.join(BUILD, "bin", "penstock-router"), "--set", f"router.model={need_model()}",
                               "--set", "router.model_name=main", "--set", setting], capture_output=True, text=True)
        check(done.returncode == 2 and sentence in done.stderr + done.stdout, f"{setting}: {done}")


def test():
    with tempfile.TemporaryDirectory() as folder:
        tiny = os.path.join(folder, "tiny.gguf")
        subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), tiny], check=True)
        bad_configurations(folder, tiny)
        alerts_name_their_model(folder, tiny)
        with Models(folder, tiny) as cluster:
            names(cluster)
            alone = both_at_once(cluster)
            tokens_and_templates(cluster)
            one_is_killed(cluster, alone)
            metrics(cluster)
            one_is_full(cluster)
            print(json.dumps(cluster.state()["models"]))
            cluster.check_idle()


main(test)
