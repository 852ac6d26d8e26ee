#!/usr/bin/env python3
# tags: integration
# limit: 400
"""Every process is restarted, one after another, under 16 streams on 2P2D with two routers: no stream is lost, every text is the right one, and
the longest pause is reported. `rolling_restart.py ROUNDS` does it several times."""
import http.client
import json
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import SLOW, Cluster, Failure, check, free_port, main  # noqa: E402
from streams import PATIENT, Watch, metric, text_of  # noqa: E402

STREAMS = 16
PROMPT = "Describe a house with many rooms, and what is in each of them. " * 6
KINDS = [dict(temperature=0), dict(temperature=0.9, seed=5, presence_penalty=0.4, repetition_penalty=1.1),
         dict(temperature=0.7, seed=9, top_p=0.9, stop=["zzz"]), dict(temperature=1.1, seed=3, frequency_penalty=0.3)]


class TwoRouters(Cluster):
    """Two routers, `sides`, each with its ports and its process; requests of the base class go to the first."""

    def __init__(self):
        self.sides = [{}, {"http": free_port(), "control": free_port()}]
        super().__init__(0, 0, wait=False, router=PATIENT["router"] + ["policy.local_prefill_tokens=0"], engine=PATIENT["engine"])
        self.sides[0] = {"http": self.http_port, "control": self.control_port, "process": self.router}
        self.command = self.router.popen.args[1:]
        self.start_side(self.sides[1])
        urls = ",".join(f"tcp://127.0.0.1:{side['control']}" for side in self.sides)
        self.joins = [f"worker.routers={urls}"]
        self.workers = [self.start_worker(role, self.joins) for role in ("prefill", "prefill", "decode", "decode")]
        self.all_ready()

    def start_side(self, side):
        command = [a.replace(f":{self.sides[0].get('http', self.http_port)}", f":{side['http']}")
                   .replace(f":{self.sides[0].get('control', self.control_port)}", f":{side['control']}") for a in self.command]
        self.counter += 1
        side["process"] = self.start("router", command, f"router-{self.counter}")

    def use(self, side):
        self.http_port, self.control_port = side["http"], side["control"]
        return self

    def all_ready(self):
        for side in reversed(self.sides):
            self.use(side).wait_ready(2, 2)


class Client:
    """Asks one router, or the other where that one takes nothing; an answer that has begun must end well."""

    def __init__(self, cluster, kind, truth, first):
        self.cluster, self.kind, self.truth, self.turn = cluster, kind, truth, first
        self.answers = self.tries = 0

    def attempt(self, port, watch):
        last = [0.0]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120 * SLOW)
        try:
            connection.request("POST", "/v1/completions", json.dumps(self.kind), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                check(response.status in (429, 503), f"status {response.status}: {response.read()!r}")
                return None
        except OSError:
            return None  # nobody listens there, or it closed before it took the request
        except http.client.HTTPException:
            return None
        try:
            events = []
            for line in response:
                if line.startswith(b"data: "):
                    watch.note(last)
                    events.append("[DONE]" if line.strip() == b"data: [DONE]" else json.loads(line[6:]))
            return text_of(events)
        finally:
            connection.close()

    def run(self, watch, over):
        while not over.is_set():
            self.turn += 1
            text = self.attempt(self.cluster.sides[self.turn % 2]["http"], watch)
            if text is None:
                self.tries += 1
                check(self.tries < 2000, "no router takes a request")
                time.sleep(0.02)
                continue
            check(text == self.truth, f"{text!r} is not {self.truth!r}")
            self.answers += 1


def restart_worker(cluster, worker):
    worker.kill(signal.SIGTERM)
    check(worker.popen.wait(60 * SLOW) == 0, f"{worker.name} ended with {worker.popen.returncode}")
    cluster.workers.remove(worker)
    cluster.workers.append(cluster.start_worker(worker.role, cluster.joins))
    cluster.all_ready()


def restart_router(cluster, side):
    side["process"].kill(signal.SIGTERM)
    check(side["process"].popen.wait(60 * SLOW) == 0, f"a router ended with {side['process'].popen.returncode}")
    cluster.start_side(side)
    cluster.all_ready()


def restart_all(cluster, watch):
    totals = {"moved": 0, "failed": 0, "recomputed": 0, "retries": 0}

    def count(side):
        cluster.use(side)
        for result in ("moved", "failed", "recomputed"):
            totals[result] += metric(cluster, "penstock_migrations_total", result=result)
        totals["retries"] += metric(cluster, "penstock_retries_total")
    for worker in list(cluster.workers):
        watch.longest = 0.0
        restart_worker(cluster, worker)
        print(f"{worker.name} restarted: longest pause {watch.longest * 1000:.0f} ms")
    for side in cluster.sides:
        count(side)
        watch.longest = 0.0
        restart_router(cluster, side)
        print(f"router restarted: longest pause {watch.longest * 1000:.0f} ms")
    print("sequences moved {moved:.0f}, moves failed {failed:.0f}, given back {recomputed:.0f}, further attempts {retries:.0f}".format(**totals))
    check(totals["moved"] > 0, "nothing moved")


def test():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with TwoRouters() as cluster:
        kinds = [dict(kind, model=cluster.model_name(), prompt=PROMPT, max_tokens=60, ignore_eos=True, stream=True) for kind in KINDS]
        truths = [text_of(cluster.stream("/v1/completions", kind)) for kind in kinds]
        watch, over, errors = Watch(), threading.Event(), []
        clients = [Client(cluster, kinds[i % 4], truths[i % 4], i) for i in range(STREAMS)]

        def run(client):
            try:
                client.run(watch, over)
            except Exception as e:  # noqa: B902 - every way in which a stream is lost
                errors.append(e)
        threads = [threading.Thread(target=run, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        try:
            for _ in range(rounds):
                restart_all(cluster, watch)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        if errors:
            raise Failure(f"{len(errors)} streams were lost, the first: {errors[0]!r}")
        print(f"{sum(c.answers for c in clients)} answers, all right")
        for side in cluster.sides:
            cluster.use(side).check_idle()


main(test)
