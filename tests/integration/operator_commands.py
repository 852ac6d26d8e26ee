#!/usr/bin/env python3
# tags: integration router
# limit: 120
"""What operators do with `penstock`: it shows workers, drains and cordons them, and says in one sentence what is wrong;
workers of an older protocol; who may give orders."""
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fakes import FakeCluster  # noqa: E402
from cluster import SLOW, check, free_port, main, run_parts  # noqa: E402
from operators import PROGRAM, penstock  # noqa: E402

def body(cluster, **more):
    return dict({"model": cluster.model_name(), "prompt": "net " * 200, "max_tokens": 5, "temperature": 0, "ignore_eos": True}, **more)


def worker_of(cluster, answer):
    return cluster.json("GET", "/requests/" + answer["id"])["decode_worker"]


def showing():
    with FakeCluster() as cluster:
        check("(none has joined" in penstock(cluster, "workers"), "an empty cluster")
        cluster.fake("prefill", "p1", pages=100)
        cluster.fake("decode", "a-decode-worker-of-a-long-name", pages=200)
        text = penstock(cluster, "workers")
        lines = text.splitlines()
        check(len(lines) == 3 and len({line.index(word) for line, word in zip(lines, ("role", "decode ", "prefill")) if word in line}) <= 2, text)
        check("0/200" in text and "0/100" in text and "alive" in text, text)
        listed = json.loads(penstock(cluster, "workers", "--json"))
        check({w["name"] for w in listed} == {"p1", "a-decode-worker-of-a-long-name"}, f"{listed}")


def cordoning():
    """A cordoned worker goes on with what it has and gets nothing new; uncordoned, it is used again."""
    with FakeCluster() as cluster:
        cluster.fake("decode", "a", step_ms=20)
        cluster.fake("decode", "b")
        run = threading.Thread(target=lambda: answers.append(cluster.json("POST", "/v1/completions", body(cluster, max_tokens=60))))
        answers = []
        run.start()
        busy = cluster.until("one works", lambda: [w["name"] for w in cluster.state()["workers"] if w["sequences_running"]])[0]
        penstock(cluster, "cordon", busy)
        cluster.until("cordoned", lambda: cluster.worker(busy)["state"] == "cordoned")
        for _ in range(5):
            check(worker_of(cluster, cluster.json("POST", "/v1/completions", body(cluster))) != busy, "it got new work")
        run.join()
        check(worker_of(cluster, answers[0]) == busy, "it did not finish what it had")
        other = "b" if busy == "a" else "a"
        penstock(cluster, "cordon", other)
        cluster.until("not ready", lambda: cluster.request("GET", "/ready")[0] == 503)
        penstock(cluster, "uncordon", busy)
        cluster.until("ready", lambda: cluster.request("GET", "/ready")[0] == 200)
        check(worker_of(cluster, cluster.json("POST", "/v1/completions", body(cluster))) == busy, "it is used again")


def draining():
    with FakeCluster() as cluster:
        worker = cluster.fake("decode", "a", step_ms=20)
        cluster.fake("decode", "b")
        worker.expected_death = True
        incarnation = cluster.worker("a")["incarnation"]
        text = penstock(cluster, "drain", incarnation, "--wait")
        check(text == "a: drain accepted\na: done\n", text)
        check(worker.popen.wait(30 * SLOW) == 0, "exit status")
        check([w["name"] for w in cluster.state()["workers"]] == ["b"], "it is gone")


def mistakes():
    with FakeCluster() as cluster:
        cluster.fake("decode", "d1")
        cluster.fake("decode", "twin")
        cluster.fake("prefill", "twin")
        cluster.until("all are alive", lambda: [w["state"] for w in cluster.state()["workers"]] == ["alive"] * 3)
        for arguments, expect, sentence in (
                (["drain", "nobody"], 1, "there is no worker of this name"), (["drain", "twin"], 1, "several workers have this name"),
                (["flip", "d1", "decoder"], 1, "a flip needs a role: prefill or decode"), (["flip", "d1", "prefill"], 1, "worker d1: a fake cannot flip"),
                (["drian", "d1"], 2, "there is no command drian"), (["drain"], 2, "penstock drain WORKER"), (["flip", "d1"], 2, "penstock flip WORKER"),
                (["workers", "--color"], 2, "the option --color is not known"), (["workers", "d1"], 2, "workers takes no arguments")):
            text = penstock(cluster, *arguments, expect=expect)
            check(sentence in text, f"{arguments}: {text}")
        for sent, param in (({"worker": "d1"}, "action"), ({"worker": "d1", "action": "cordon", "role": "decode"}, "role"), ([], None)):
            code, _, data = cluster.request("POST", "/admin/workers", sent)
            check(code == 400 and json.loads(data)["error"]["param"] == param, f"{sent}: {code} {data}")
    nobody = subprocess.run([PROGRAM, "workers", "--router", f"http://127.0.0.1:{free_port()}"], capture_output=True, text=True)
    check(nobody.returncode == 1 and "cannot be reached: Connection refused" in nobody.stderr, nobody.stderr)
    for url, sentence in (("ftp://127.0.0.1", "right is http://host:port"), ("http://127.0.0.1:x", "127.0.0.1:x")):
        wrong = subprocess.run([PROGRAM, "workers", "--router", url], capture_output=True, text=True)
        check(wrong.returncode == 1 and sentence in wrong.stderr, wrong.stderr)


def another_server():
    """What is no router is told from one."""
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    server.RequestHandlerClass.log_message = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    done = subprocess.run([PROGRAM, "workers", "--router", f"http://127.0.0.1:{server.server_port}/"], capture_output=True, text=True)
    server.shutdown()
    server.server_close()
    check(done.returncode == 1 and "is it a Penstock router?" in done.stderr, done.stderr)


def access():
    """Orders are for clients of this machine, or for holders of the key; never through a proxy, never where they are off."""
    order = {"worker": "d1", "action": "cordon"}
    with FakeCluster() as cluster:
        cluster.fake("decode", "d1")
        check(cluster.request("POST", "/admin/workers", order, headers={"X-Forwarded-For": "10.1.1.1"})[0] == 403, "a proxy's client")
        check(cluster.request("POST", "/admin/workers", order, headers={"X-Forwarded-For": ""})[0] == 403, "a proxy's client that began with an empty field")
    with tempfile.TemporaryDirectory() as folder:
        keys = [os.path.join(folder, name) for name in ("right", "wrong")]
        for path, key in zip(keys, ("0123456789abcdef", "0123456789abcdeF")):
            with open(path, "w") as f:
                f.write(key + "\n")
        with FakeCluster(router=["admin.access=key", f"admin.key_file={keys[0]}"]) as cluster:
            cluster.fake("decode", "d1")
            check("admin.access" in penstock(cluster, "cordon", "d1", expect=1), "without a key")
            check("admin.access" in penstock(cluster, "cordon", "d1", "--key-file", keys[1], expect=1), "with another key")
            penstock(cluster, "cordon", "d1", "--key-file", keys[0])
    with FakeCluster(router=["admin.access=off"]) as cluster:
        check("admin.access" in penstock(cluster, "cordon", "d1", expect=1), "off")


def the_protocol_before():
    """A worker of the version before is served and can be drained; other orders and the version before that are refused by a sentence."""
    with FakeCluster() as cluster:
        old = cluster.fake("decode", "old", protocol=1)
        check(cluster.json("POST", "/v1/completions", body(cluster))["usage"]["completion_tokens"] == 5, "it serves")
        check("worker old: it speaks protocol 1, which has no order but drain" in penstock(cluster, "cordon", "old", expect=1), "no such order")
        ancient = cluster.fake("decode", "ancient", wait=False, protocol=0)
        ancient.expected_death = old.expected_death = True
        check(ancient.popen.wait(30 * SLOW) == 6, "it is refused")
        check("protocol is 0; this program understands 1 and 2 (upgrade one version at a time)" in ancient.text(), ancient.text())
        penstock(cluster, "drain", "old", "--wait")
        check(old.popen.wait(30 * SLOW) == 0, "it is drained")


def test():
    run_parts((showing, cordoning, draining, mistakes, another_server, access, the_protocol_before))


main(test)
