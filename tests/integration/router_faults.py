#!/usr/bin/env python3
# tags: integration router
# limit: 180
"""The router when workers fail, clients leave, room is short, and when it is told to end; over workers without an engine."""
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fakes import FakeCluster  # noqa: E402
from cluster import SLOW, check, main, run_parts, together  # noqa: E402

PROMPT = "One morning the ships came back to the harbour with empty nets. " * 8  # longer than policy.local_prefill_tokens
QUICK = [f"control.heartbeat={int(50 * SLOW)}ms", f"control.suspect_after={int(150 * SLOW)}ms", f"control.dead_after={int(600 * SLOW)}ms"]


def body(cluster, tokens=60, **more):
    return dict({"model": cluster.model_name(), "prompt": PROMPT, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}, **more)


def stream_text(cluster, on_event=None, **more):
    events = cluster.stream("/v1/completions", body(cluster, **more), on_event=on_event)
    errors = [e for e in events if e != "[DONE]" and "error" in e]
    check(not errors and events[-1] == "[DONE]", f"{errors} {events[-1]}")
    return "".join(e["choices"][0]["text"] for e in events[:-1])


def after(count, action):
    seen = [0]

    def on_event(_):
        seen[0] += 1
        if seen[0] == count:
            action()
    return on_event


def strike_in_mid_stream(cluster, truth, count, role, number):
    """Behind so many events, a busy worker of this role gets this signal, and is replaced afterwards; the text is the same. Returns
    whether the answer had to go on elsewhere: on a busy machine it may be complete before the strike."""
    def strike():
        busy = [w["name"] for w in cluster.state()["workers"] if w["role"] == role and w["sequences_running"]]
        victims[:] = [p for p in cluster.workers if p.worker in busy[:1]]
        for p in victims:
            p.expected_death = True
            p.kill(number)
    victims, retries = [], f'penstock_retries_total{{reason="{role}_worker_lost"}}'
    before = cluster.metric(retries)
    text = stream_text(cluster, after(count, strike))
    check(text == truth, f"{role} {number}: {text!r} is not {truth!r}")
    for p in victims:
        p.kill()
        p.popen.wait()
        cluster.workers.remove(p)
        cluster.until("the lost worker is gone", lambda: p.worker not in [w["name"] for w in cluster.state()["workers"]])
        cluster.fake(role, p.worker, prefill_ms=40, handover_ms=30)
    return cluster.metric(retries) > before


def killed_and_stopped():
    """SIGKILL and SIGSTOP of either worker in mid-stream: the same text, no error; a restart under the same name serves again."""
    with FakeCluster(router=QUICK) as cluster:
        for name in ("p1", "p2"):
            cluster.fake("prefill", name, prefill_ms=40, handover_ms=30)
        for name in ("d1", "d2"):
            cluster.fake("decode", name, prefill_ms=40, handover_ms=30)
        truth = stream_text(cluster)
        for count, role, number in ((5, "decode", signal.SIGKILL), (1, "prefill", signal.SIGKILL), (20, "decode", signal.SIGSTOP)):
            struck = any(strike_in_mid_stream(cluster, truth, count, role, number) for _ in range(20 if role == "decode" else 1))
            check(struck or role == "prefill", f"no strike with {number} at a {role} worker after {count} events made an answer go on elsewhere")
        cluster.check_idle()


def misbehaving():
    """Refusals, failures, gaps and repeats of one worker change nothing in the text."""
    for fault in (dict(refuse=3), dict(fail_after=7), dict(gap_after=7), dict(repeat=True)):
        with FakeCluster() as cluster:
            cluster.fake("decode", "bad", **fault)
            truth = (PROMPT * 3)
            text = stream_text(cluster)
            check(truth.startswith(text) and len(text) > 100, f"{fault}: {text!r}")
            cluster.check_idle()
    with FakeCluster() as cluster:
        cluster.fake("decode", nan_after=5)
        events = cluster.stream("/v1/completions", body(cluster))
        check(events[-1]["error"]["code"] == "numeric_failure", f"{events[-1]}")
        code, _, data = cluster.request("POST", "/v1/completions", body(cluster))
        check(code == 500 and json.loads(data)["error"]["code"] == "numeric_failure", f"{code} {data}")
        cluster.check_idle()


def poison():
    """A request that three workers died with is refused by name; the fourth is not offered to it."""
    with FakeCluster() as cluster:
        for i in range(4):
            cluster.fake("decode", f"d{i}", die=True).expected_death = True
        code, _, data = cluster.request("POST", "/v1/completions", body(cluster))
        check(code == 500 and json.loads(data)["error"]["code"] == "poison", f"{code} {data}")
        check(len(cluster.state()["workers"]) == 1, f"{cluster.state()['workers']}")
        check("is poison: workers died with it deaths 3" in cluster.router.text(), "the log names it")


def first_token_late():
    """Tokens of the decode worker that overtake the prefill worker's first one wait for it."""
    with FakeCluster() as cluster:
        cluster.fake("prefill", "p", prefill_ms=300)
        cluster.fake("decode", "d", prefill_ms=10)
        check(stream_text(cluster) == stream_text(cluster), "texts differ")
        answer = cluster.json("POST", "/v1/completions", body(cluster))
        check(PROMPT.startswith(answer["choices"][0]["text"][:200]) and answer["usage"]["completion_tokens"] == 60, f"{answer}")
        check(cluster.json("GET", "/requests/" + answer["id"])["attempts"] == 1, "it was tried again")
        one = cluster.json("POST", "/v1/completions", body(cluster, 1))
        check(one["usage"]["completion_tokens"] == 1, f"{one}")
        cluster.workers[0].expected_death = True
        threading.Timer(0.1, cluster.workers[0].kill).start()
        last = cluster.json("POST", "/v1/completions", body(cluster))
        check(last["choices"] == answer["choices"], f"the prefill worker died before its token: {last}")
        cluster.check_idle()


def worker_comes_late():
    """Requests that come while no worker lives are served by the next one."""
    with FakeCluster(router=["router.worker_wait=60s"] + QUICK) as cluster:
        first = threading.Timer(0.5, lambda: cluster.fake("decode", "first", wait=False))
        first.start()
        answer = cluster.json("POST", "/v1/completions", body(cluster))
        first.join()
        worker = cluster.workers[0]
        worker.expected_death = True
        worker.kill()
        cluster.until("the first one is forgotten", lambda: not cluster.json("GET", "/cluster")["workers"])
        later = threading.Timer(0.5, lambda: cluster.fake("decode", "second", wait=False))
        later.start()
        answers = together([lambda: cluster.json("POST", "/v1/completions", body(cluster))] * 4)
        later.join()
        check(all(a["choices"] == answer["choices"] for a in answers), f"{answers}")
        check(cluster.metric('penstock_requests_total{outcome="error"}') == 0, "none failed")
        cluster.check_idle()


def held_back_by_their_share():
    """Requests that their class's share has held back for long wait for a worker as others do, once there is none."""
    wait_s = 10
    with FakeCluster(router=["admission.batch_share=0.5", f"router.worker_wait={wait_s}s"]) as cluster:
        worker = cluster.fake("decode", "d", sequences=4, step_ms=20)
        holders = [http.client.HTTPConnection(cluster.router_host, cluster.http_port) for _ in range(2)]
        for c in holders:
            c.request("POST", "/v1/completions", json.dumps(body(cluster, 5000, priority=1)), {"Content-Type": "application/json"})
        cluster.until("the share is full", lambda: cluster.state()["requests_running"] == 2)
        codes = []
        waiting = [threading.Thread(target=lambda: codes.append(cluster.request("POST", "/v1/completions", body(cluster, 5, priority=1))[0])) for _ in range(5)]
        for thread in waiting:
            thread.start()
        cluster.until("five wait", lambda: cluster.state()["requests_waiting"] == 5)
        time.sleep(wait_s + 1)
        worker.expected_death = True
        worker.kill()
        cluster.until("the worker is forgotten", lambda: not cluster.state()["workers"])
        cluster.fake("decode", "d", sequences=4)
        for c in holders:
            c.close()
        for thread in waiting:
            thread.join()
        check(codes == [200] * 5, f"{codes}")
        cluster.check_idle()


def alone_then_lost():
    """The only decode worker dies: an error event after the first byte, a status before it."""
    with FakeCluster(router=["router.retry_budget=300ms", "router.worker_wait=200ms"]) as cluster:
        began = time.monotonic()
        code, headers, data = cluster.request("POST", "/v1/completions", body(cluster))
        check(time.monotonic() - began >= 0.2, "it did not wait for a worker")
        check(code == 503 and headers.get("Retry-After") and json.loads(data)["error"]["code"] == "no_worker", f"{code} {data}")
        check(cluster.request("GET", "/ready")[0] == 503, "ready without workers")
        worker = cluster.fake("decode")
        check(cluster.request("GET", "/ready")[0] == 200, "not ready with a worker")
        events = cluster.stream("/v1/completions", body(cluster, 500), on_event=after(5, worker.kill))
        check(events[-1]["error"]["code"] == "worker_failed" and "[DONE]" not in events, f"{events[-1]}")
        slow = cluster.fake("decode", prefill_ms=int(20000 * SLOW))
        strike = threading.Thread(target=lambda: (cluster.until("it runs", lambda: cluster.state()["requests_running"] == 1), slow.kill()))
        strike.start()
        code, _, data = cluster.request("POST", "/v1/completions", body(cluster))
        strike.join()
        check(code == 502 and json.loads(data)["error"]["code"] == "worker_failed", f"{code} {data}")
        check(cluster.metric('penstock_requests_total{outcome="error"}') == 3, "errors are counted")


def slow_workers():
    """A silent stream gets comment lines; a request past its deadline ends with 504, or an error event."""
    with FakeCluster(router=["router.silence=100ms", "router.request_timeout=10s"]) as cluster:
        cluster.fake("decode", prefill_ms=3000, step_ms=40)
        connection = http.client.HTTPConnection(cluster.router_host, cluster.http_port)
        connection.request("POST", "/v1/completions", json.dumps(body(cluster, 5000, stream=True)), {"Content-Type": "application/json"})
        whole = []
        other = threading.Thread(target=lambda: whole.append(cluster.request("POST", "/v1/completions", body(cluster, 5000))))
        other.start()
        lines = [line.strip() for line in connection.getresponse()]
        other.join()
        check(lines.count(b": waiting") >= 2, f"{lines[:9]}")
        check(lines.index(b": waiting") < min(i for i, line in enumerate(lines) if line.startswith(b"data: ")), f"{lines[:9]}")
        check(json.loads(lines[-2][6:])["error"]["code"] == "deadline", f"{lines[-3:]}")
        code, _, data = whole[0]
        check(code == 504 and json.loads(data)["error"]["code"] == "deadline", f"{code} {data}")
        cluster.check_idle()


def clients_leave():
    """A client that goes, streaming or not, running or queued, frees its pages; half a close is enough."""
    with FakeCluster() as cluster:
        cluster.fake("decode", "d", sequences=4, step_ms=20)
        for stream in (True, False):
            connections = []
            for i in range(6):  # two of them must wait
                c = http.client.HTTPConnection(cluster.router_host, cluster.http_port)
                c.request("POST", "/v1/completions", json.dumps(body(cluster, 5000, stream=stream)), {"Content-Type": "application/json"})
                connections.append(c)
            cluster.until("four run and two wait", lambda: cluster.worker("d")["sequences_running"] == 4 and
                          cluster.state()["requests_waiting"] == 2)
            half = connections.pop()
            half.sock.shutdown(socket.SHUT_WR)
            for c in connections:
                c.sock.close()
            cluster.check_idle()
            half.sock.close()
        check(cluster.metric('penstock_requests_total{outcome="abort"}') == 12, "aborts are counted")
        check(cluster.metric('penstock_credit_pages{role="decode",state="spent"}') == 0, "credits came back")


def room_is_short():
    """More than fits waits in order, more than may wait is 429 with Retry-After; nothing is lost."""
    with FakeCluster(router=["admission.interactive_queue=3"]) as cluster:
        cluster.fake("decode", sequences=2, step_ms=25)
        results = together([lambda: cluster.request("POST", "/v1/completions", body(cluster, 30)) for _ in range(12)])
        codes = sorted(r[0] for r in results)
        check(codes.count(200) >= 5 and codes.count(200) + codes.count(429) == 12 and 429 in codes, f"{codes}")
        for code, headers, data in results:
            if code == 429:
                check(1 <= int(headers["Retry-After"]) <= 60 and json.loads(data)["error"]["code"] == "queue_full", f"{data}")
        cluster.check_idle()
    with FakeCluster() as cluster:
        cluster.fake("decode", pages=4)
        code, _, data = cluster.request("POST", "/v1/completions", body(cluster, 30, prompt="word " * 1000))
        check(code == 503 and json.loads(data)["error"]["code"] == "too_large_for_workers", f"{code} {data}")
        check(cluster.request("POST", "/v1/completions", body(cluster, 30))[0] == 200, "a smaller one is served")


def strangers():
    """A worker of another model is refused with a sentence; workers of unlike numeric ids do not pair."""
    with FakeCluster() as cluster:
        other = cluster.fake("decode", wait=False, weights=1)
        other.expected_death = True
        check(other.popen.wait(30 * SLOW) == 6 and "other weights" in other.text(), other.text())
        check(cluster.state()["workers"] == [], "it is no worker")
        cluster.fake("prefill", "p", numeric=7)
        cluster.fake("decode", "d", numeric=8)
        answer = cluster.json("POST", "/v1/completions", body(cluster))
        line = cluster.json("GET", "/requests/" + answer["id"])
        check(line["prefill_worker"] is None and line["local_prefill"] == "no_prefill_worker", f"{line}")
        check(cluster.metric('penstock_fallbacks_total{reason="no_prefill_worker"}') == 1, "the fallback is counted")
    with FakeCluster(router=["policy.local_prefill=false"]) as cluster:
        cluster.fake("decode", "d")
        check(cluster.request("POST", "/v1/completions", body(cluster))[0] == 503, "a refused fallback is an error")
        check(cluster.request("GET", "/ready")[0] == 503, "not ready without a prefill worker")


def drain():
    """SIGTERM: not ready, new requests 503 and close, running ones finish, exit 0; past the deadline an error event, exit 3."""
    with FakeCluster() as cluster:
        cluster.fake("decode", step_ms=20)

        def term():
            cluster.router.expected_death = True
            cluster.router.kill(signal.SIGTERM)
            cluster.until("draining", lambda: cluster.request("GET", "/ready")[0] == 503)
            code, headers, data = cluster.request("POST", "/v1/completions", body(cluster))
            check(code == 503 and headers.get("Connection") == "close", f"{code} {headers} {data}")
        text = stream_text(cluster, after(3, term))
        check(len(text) > 100, f"{text!r}")
        check(cluster.router.popen.wait(30 * SLOW) == 0, "exit status after a drain")
        for p in cluster.processes:
            p.expected_death = True
    for action, code in ((["router.drain_deadline=200ms"], 3), ([], 3)):
        with FakeCluster(router=action) as cluster:
            cluster.fake("decode", step_ms=20)
            for p in cluster.processes:
                p.expected_death = True

            def end():
                cluster.router.kill(signal.SIGTERM)
                if not action:
                    time.sleep(0.1)
                    cluster.router.kill(signal.SIGTERM)
            try:
                events = cluster.stream("/v1/completions", body(cluster, 1000), on_event=after(3, end))
                if action:
                    check(events[-1]["error"]["code"] == "draining", f"{events[-1]}")
                else:
                    check("[DONE]" not in events, "a second signal ends at once")
            except (http.client.HTTPException, OSError):
                check(not action, "the stream was cut without an error event")
            check(cluster.router.popen.wait(30 * SLOW) == code, f"exit status {cluster.router.popen.returncode}")


def test():
    run_parts((misbehaving, killed_and_stopped, poison, first_token_late, worker_comes_late, held_back_by_their_share, alone_then_lost, slow_workers, clients_leave, room_is_short, strangers, drain))


main(test)
