#!/usr/bin/env python3
# tags: integration router
# limit: 180
"""Field faults of HTTP, JSON and the OpenAI API (tests/field_cases.md, B001 to B028), on the router over workers without an engine."""
import json
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fakes import FakeCluster  # noqa: E402
from raw_http import body, request_bytes, talk  # noqa: E402
from cluster import SLOW, check, main  # noqa: E402

ROUTES = ("completions", "chat/completions")
OWN_CLUSTERS = ("b016_an_error_behind_the_first_byte_is_an_event", "b017_who_leaves_while_it_waits_is_never_started")


def refused(cluster, route, raw, status=400, param=None):
    code, _, data = cluster.request("POST", "/v1/" + route, raw, timeout=20)
    error = json.loads(data.decode("utf-8"))["error"]
    check(code == status and error["param"] == param and error["type"] and error["message"], f"{route} {str(raw)[:100]}: {code} {data[:300]}")
    return error


def served(cluster, route="completions", **more):
    return cluster.json("POST", "/v1/" + route, body(cluster, route, **more), timeout=20)


def b001_broken_json_is_refused_and_nothing_stops(cluster):
    for route in ROUTES:
        for raw in (b"", b"{", b"{: 1}", b"[", b'"x"', b"null", b'{"model":"m"} x', b'{"model":"m","model":"n"}', b'{"model":"m",}',
                    b'\xef\xbb\xbf{"model":"m"}', b'{"model":"m","temperature":NaN}'):
            refused(cluster, route, raw)
        served(cluster, route)


def b002_bytes_that_are_no_utf8_are_not_echoed(cluster):
    name = cluster.model_name().encode()
    for raw in (b'{"model":"%s","prompt":"\xc4\xe3\xff"}' % name, b'{"model":"\xc4\xe3"}', b'{"model":"%s","prompt":"a","\xc4\xe3":1}' % name):
        refused(cluster, "completions", raw)
    for raw in (b"GET /\xc4\xe3\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", request_bytes(cluster, b"X-Request-Id: \xc4\xe3\xff\r\n")):
        got = talk(cluster, [raw])
        check(got.startswith(b"HTTP/1.1 ") and b"\xc4\xe3" not in got, f"{got[:200]}")
        got.decode("utf-8")


def b003_half_a_surrogate_pair_is_refused(cluster):
    name = cluster.model_name()
    for text in ("\\ud83d", "\\ude00", "\\ude00\\ud83d", "x \\ud83d y"):
        refused(cluster, "completions", ('{"model":"%s","prompt":"%s","max_tokens":1}' % (name, text)).encode())
    ids = [cluster.json("POST", "/tokenize", ('{"prompt":"%s"}' % text).encode())["tokens"] for text in ("\\ud83d\\ude00", "😀")]
    check(ids[0] == ids[1], f"a pair is not one code point: {ids}")


def b005_lengths_never_wrap(cluster):
    for route in ROUTES:
        for value in (0, -1, -2, 1.5, "16", True, 1e18):
            refused(cluster, route, body(cluster, route, max_tokens=value), param="max_tokens")
        for value in (2147483647, 2147483648, 4294967296, 9223372036854775807):
            error = refused(cluster, route, body(cluster, route, max_tokens=value), param="max_tokens")
            check(error["code"] == "context_length_exceeded", f"{value}: {error}")
        for raw in ("1e400", "16.0"):
            text = json.dumps(body(cluster, route)).replace('"max_tokens": 2', '"max_tokens": ' + raw)
            refused(cluster, route, text.encode(), param=None if raw == "1e400" else "max_tokens")


def b006_max_completion_tokens_counts(cluster):
    for more, count in (({"max_completion_tokens": 3}, 3), ({"max_completion_tokens": 3, "max_tokens": 9}, 3), ({"max_completion_tokens": 9, "max_tokens": 3}, 9)):
        answer = served(cluster, "chat/completions", **{"max_tokens": None, **more})
        check(answer["usage"]["completion_tokens"] == count and answer["choices"][0]["finish_reason"] == "length", f"{more}: {answer}")


def b008_an_empty_prompt_is_refused(cluster):
    for prompt, param in (("", "prompt"), ([""], "prompt"), (["", "a"], "prompt"), ([], "prompt"), ([[]], "prompt")):
        refused(cluster, "completions", body(cluster, "completions", prompt=prompt), param=param)
        served(cluster)
    refused(cluster, "chat/completions", body(cluster, "chat/completions", messages=[]), param="messages")
    served(cluster, "chat/completions", messages=[{"role": "user", "content": ""}])


def b009_ids_outside_the_vocabulary_reach_no_worker(cluster):
    size = cluster.json("GET", "/tokenizer_info")["vocab_size"]
    for prompt, param in (([-1], "prompt[0]"), ([size], "prompt[0]"), ([2147483648], "prompt[0]"), ([9223372036854775807], "prompt[0]"), ([1.5], "prompt[0]"),
                          ([None], "prompt[0]"), ([[1, 2], [size]], "prompt[1][0]"), (["a", 1], "prompt[1]"), ([1, [2]], "prompt[1]")):
        refused(cluster, "completions", body(cluster, "completions", prompt=prompt), param=param)
    served(cluster, prompt=[size - 1])


def b010_logit_bias_is_checked_at_the_router(cluster):
    size = cluster.json("GET", "/tokenizer_info")["vocab_size"]
    long = {"prompt": "net " * 30, "max_tokens": 60, "seed": 3}
    alone, others = served(cluster, **long)["choices"][0]["text"], []
    threads = [threading.Thread(target=lambda: others.append(served(cluster, **long)["choices"][0]["text"])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for bias in ({str(size): -100}, {"-1": 1}, {"AI": -100}, {"1.0": 1}, {" 5": 1}, {"5": "x"}, {"5": 1e9}, {"5": None}, [], {str(i): 1 for i in range(200000)}):
        refused(cluster, "completions", body(cluster, "completions", logit_bias=bias), param="logit_bias")
    for thread in threads:
        thread.join()
    check(others == [alone] * 8, f"others' texts are not the one alone: {others}")
    served(cluster, logit_bias={"5": 100, str(size - 1): -100})


def b011_choices_are_numbered_prompt_by_prompt(cluster):
    asked = body(cluster, "completions", prompt=["A1", "B2", "C3"], n=2, echo=True, max_tokens=4, temperature=0.8, seed=7)
    whole = cluster.json("POST", "/v1/completions", asked)
    begin = ["A1", "A1", "B2", "B2", "C3", "C3"]
    check([c["index"] for c in whole["choices"]] == list(range(6)), f"{whole}")
    check(all(c["text"].startswith(b) for c, b in zip(whole["choices"], begin)), f"{whole}")
    events = cluster.stream("/v1/completions", {**asked, "stream": True, "stream_options": {"include_usage": True}})
    check(events[-1] == "[DONE]" and events[-2]["choices"] == [] and events[-2]["usage"] == whole["usage"], f"{events[-2:]}")
    texts, finished = [""] * 6, [0] * 6
    for choice in (e["choices"][0] for e in events[:-2]):
        texts[choice["index"]] += choice["text"]
        finished[choice["index"]] += choice["finish_reason"] is not None
    check(texts == [c["text"] for c in whole["choices"]] and finished == [1] * 6, f"{texts} {finished}")
    alone = [served(cluster, prompt=p)["usage"]["prompt_tokens"] for p in ("A1", "B2", "C3")]
    check(whole["usage"]["prompt_tokens"] == sum(alone), f"{whole['usage']}")


def b015_usage_comes_where_it_was_asked_for(cluster):
    for options, wanted in ((None, 0), ({}, 0), ({"include_usage": False}, 0), ({"include_usage": True}, 1)):
        asked = body(cluster, "completions", prompt=["a", "b"], n=2, stream=True, stream_options=options)
        events = cluster.stream("/v1/completions", asked)
        found = [e for e in events[:-1] if e.get("usage")]
        check(len(found) == wanted and events[-1] == "[DONE]", f"{options}: {events}")
        check(not wanted or (events[-2] is found[0] and found[0]["choices"] == [] and found[0]["usage"]["completion_tokens"] == 8), f"{events}")
    refused(cluster, "completions", body(cluster, "completions", stream_options={"include_usage": True}), param="stream_options")


def b016_an_error_behind_the_first_byte_is_an_event():
    with FakeCluster(router=["router.retry_budget=500ms"] + [f"control.{name}={int(ms * SLOW)}ms" for name, ms in (("dead_after", 500), ("suspect_after", 300), ("heartbeat", 100))]) as cluster:
        workers = [cluster.fake("prefill"), cluster.fake("decode")]
        seen = []

        def on_event(event):
            seen.append(event)
            if len(seen) == 3:
                workers[1].kill()
        events = cluster.stream("/v1/completions", body(cluster, "completions", max_tokens=2000, stream=True), on_event=on_event)
        check("[DONE]" not in events and set(events[-1]) == {"error"} and events[-1]["error"]["message"], f"{events[-2:]}")
        code, _, data = cluster.request("POST", "/v1/completions", body(cluster, "completions", stream=True))
        check(code in (502, 503) and json.loads(data)["error"]["message"], f"before the first byte: {code} {data}")


def b017_nobody_works_for_a_client_that_left(cluster):
    def gone():
        state = cluster.state()
        return state["requests_running"] + state["requests_waiting"] + state["requests_parsing"] == 0
    for stream in (True, False):
        for half in (False, True):
            asked = json.dumps(body(cluster, "completions", max_tokens=6000, stream=stream)).encode()
            with socket.create_connection((cluster.router_host, cluster.http_port)) as s:
                s.sendall(request_bytes(cluster, data=asked))
                cluster.until("it runs", lambda: cluster.state()["requests_running"] == 1)
                if half:
                    s.shutdown(socket.SHUT_WR)
                    cluster.until("it has ended", gone)
            cluster.until("it has ended", gone)
    with socket.create_connection((cluster.router_host, cluster.http_port)) as s:
        s.sendall(request_bytes(cluster)[:-10])
    cluster.until("nothing is read", gone)


def b017_who_leaves_while_it_waits_is_never_started():
    """The one place is taken: of those that wait, only the one whose client stays is placed."""
    with FakeCluster() as cluster:
        cluster.fake("decode", sequences=1, step_ms=5)
        first = threading.Thread(target=lambda: served(cluster, max_tokens=1000))
        first.start()
        cluster.until("it runs", lambda: cluster.state()["requests_running"] == 1)
        leaving = []
        for stream in (True, False):
            for _ in range(3):
                leaving.append(socket.create_connection((cluster.router_host, cluster.http_port)))
                leaving[-1].sendall(request_bytes(cluster, data=json.dumps(body(cluster, "completions", max_tokens=6000, stream=stream)).encode()))
        cluster.until("they wait", lambda: cluster.state()["requests_waiting"] == 6)
        for s in leaving:
            s.close()
        cluster.until("nobody waits", lambda: cluster.state()["requests_waiting"] == 0)
        check(cluster.state()["requests_running"] == 1, "the one that runs is not touched")
        first.join()
        served(cluster)
        check(cluster.metric("penstock_queue_seconds_count") == 2, "one that left was placed")
        cluster.check_idle()


def b018_chunked_bodies_are_bodies(cluster):
    data = json.dumps(body(cluster, "completions")).encode()
    plain = talk(cluster, [request_bytes(cluster, data=data)]).split(b"\r\n\r\n", 1)[1]
    single = b"".join(b"1\r\n%c\r\n" % byte for byte in data) + b"0\r\n\r\n"
    for sent in (single, b"%X;name=value\r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (len(data), data), b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)):
        got = talk(cluster, [request_bytes(cluster, b"Transfer-Encoding: chunked\r\n", sent)])
        check(got.startswith(b"HTTP/1.1 200"), f"{sent[:40]}: {got[:200]}")
        text = [json.loads(answer)["choices"] for answer in (got.split(b"\r\n\r\n", 1)[1], plain)]
        check(text[0] == text[1], f"{text}")
    got = talk(cluster, [request_bytes(cluster, b"Transfer-Encoding: chunked\r\n", b"%x\r\n%s\r\n" % (len(data), data))], half=True)
    check(got[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 408"), f"no last chunk: {got[:200]}")


def b019_a_client_that_waits_is_invited_or_refused(cluster):
    data = json.dumps(body(cluster, "completions")).encode()
    head = request_bytes(cluster, b"Expect: 100-continue\r\n", data)[:-len(data)]
    with socket.create_connection((cluster.router_host, cluster.http_port), timeout=60) as s:
        s.sendall(head)
        check(s.recv(100).startswith(b"HTTP/1.1 100"), "no invitation")
        s.sendall(data)
        check(s.recv(100).startswith(b"HTTP/1.1 200"), "no answer")
    for raw, status in ((head.replace(b"100-continue", b"nonsense"), b"417"), (head.replace(b"/v1/completions", b"/v1/nothing"), b"404")):
        got = talk(cluster, [raw])
        check(got.startswith(b"HTTP/1.1 " + status), f"{got[:200]}")
    got = talk(cluster, [head.replace(b"Content-Length: %d" % len(data), b"Content-Length: 99999999")])
    check(got.startswith(b"HTTP/1.1 413") and b"Connection: close" in got, f"too large a body is not invited: {got[:200]}")


def b023_there_is_no_infinity_in_json(cluster):
    def strict(name):
        raise ValueError(name)
    for route, more in (("completions", {"logprobs": 5, "top_k": 1}), ("chat/completions", {"logprobs": True, "top_logprobs": 5, "top_p": 0.01})):
        _, _, data = cluster.request("POST", "/v1/" + route, body(cluster, route, **more))
        choice = json.loads(data, parse_constant=strict)["choices"][0]
        check(choice["logprobs"], f"{choice}")


def b024_an_overflow_of_the_context_says_both_numbers(cluster):
    context = cluster.json("GET", "/v1/models")["data"][0]["max_model_len"]
    for length, more, says in ((context + 44, 1, f"has {context + 44} tokens"), (context - 56, 100, f"you requested {context + 44} tokens"),
                               (context, 1, f"has {context} tokens")):
        for stream in (False, True):
            asked = body(cluster, "completions", prompt=[7] * length, max_tokens=more, stream=stream)
            code, headers, data = cluster.request("POST", "/v1/completions", asked)
            error = json.loads(data)["error"]
            check(code == 400 and error["code"] == "context_length_exceeded" and headers["Content-Type"].startswith("application/json"), f"{code} {error}")
            check(f"maximum context length is {context} tokens" in error["message"] and says in error["message"], f"{error}")
    served(cluster, prompt=[7] * (context - 1), max_tokens=1)


def b025_bodies_up_to_the_limit_are_read(cluster):
    limit = 4 << 20  # http.body_bytes
    for size in (8191, 8193, 65537, limit, limit + 1):
        asked = body(cluster, "completions", user="")
        asked["user"] = "x" * (size - len(json.dumps(asked)))
        check(len(json.dumps(asked)) == size, "the test counts wrong")
        check(cluster.request("POST", "/v1/completions", asked)[0] == (413 if size > limit else 200), f"a body of {size} bytes")
    got = talk(cluster, [b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n"])
    check(got.startswith(b"HTTP/1.1 413"), f"{got[:200]}")
    got = talk(cluster, [request_bytes(cluster, close=False) + b"surplus\r\n\r\n"])
    check(got.startswith(b"HTTP/1.1 200") and got.count(b"HTTP/1.1 ") == 2 and b"HTTP/1.1 400" in got, f"surplus bytes: {got[-300:]}")


def b026_schemas_that_cannot_be_served_are_refused_at_once(cluster):
    patterns = ["^+x", "^{2}y$", "*", "(?<=a)*b", "[", "\\", "a{1,1000000}", "(" * 60000, "(" * 60000 + ")" * 60000, "((a{1,50}){1,50}){1,50}"]
    schemas = [{"type": "object", "properties": {"x": {"type": "string", "pattern": p}}, "required": ["x"]} for p in patterns]
    for schema in schemas + [{"$ref": "#"}, {"type": "nonsense"}, {"$ref": "#/$defs/none"}]:
        begun = time.monotonic()
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        refused(cluster, "chat/completions", body(cluster, "chat/completions", response_format=form), param="response_format")
        check(time.monotonic() - begun < 30 * SLOW, f"{str(schema)[:100]}: {time.monotonic() - begun:.2f} s")
    begun = time.monotonic()
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [f"value {i}" for i in range(100000)]}}}
    refused(cluster, "chat/completions", body(cluster, "chat/completions", response_format=form), param="response_format")
    check(time.monotonic() - begun < 40 * SLOW, f"100,000 values: {time.monotonic() - begun:.2f} s")
    served(cluster, "chat/completions")


def b027_only_json_in_utf8_is_json(cluster):
    data = body(cluster, "completions")
    for kind, status in (("application/json; charset=utf-8", 200), ("Application/JSON", 200), ('application/json;charset="UTF-8"', 200),
                         ("application/json; charset=latin1", 415), ("text/plain", 415)):
        code, _, answer = cluster.request("POST", "/v1/completions", json.dumps(data).encode(), headers={"Content-Type": kind})
        check(code == status and (status == 200 or json.loads(answer)["error"]["message"]), f"{kind}: {code} {answer[:200]}")
    kind = b"Content-Type: application/json\r\n"
    for fields, what in ((b"", "no media type"), (kind + kind, "two of them")):
        got = talk(cluster, [request_bytes(cluster).replace(kind, fields)])
        check(got.startswith(b"HTTP/1.1 415"), f"{what}: {got[:200]}")


def b028_a_request_has_one_framing(cluster):
    data = json.dumps(body(cluster, "completions")).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    for fields in (b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(data), b"Content-Length: %d\r\nContent-Length: %d\r\n" % (len(data), len(data) + 1),
                   b"Content-Length: %d\r\nContent-Length: %d\r\n" % (len(data), len(data)),
                   b"Content-Length: +%d\r\n" % len(data), b"Content-Length: -1\r\n", b"Content-Length: 0x10\r\n", b"Content-Length: 5, 5\r\n",
                   b"Transfer-Encoding: xchunked\r\n", b"Content-Length : %d\r\n" % len(data)):
        got = talk(cluster, [head + fields + b"\r\n" + data])
        check(got[:10] == b"HTTP/1.1 4" or got[:12] == b"HTTP/1.1 501", f"{fields}: {got[:200]}")
        check(got.count(b"HTTP/1.1 ") == 1, f"{fields}: {got}")
    check(talk(cluster, [request_bytes(cluster).replace(b"\r\n", b"\n")])[:12] == b"HTTP/1.1 400", "bare line feeds")
    check(talk(cluster, [b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (1 << 20) + b"\r\n\r\n"])[:12] in (b"", b"HTTP/1.1 431"), "a head of 1 MB")
    served(cluster)


def test():
    with FakeCluster() as cluster:
        cluster.fake("prefill")
        cluster.fake("decode")
        for name, part in sorted(globals().items()):
            if name.startswith("b0") and name not in OWN_CLUSTERS:
                part(cluster)
                print(name)
        cluster.check_idle()
    for name in OWN_CLUSTERS:
        globals()[name]()
        print(name)


main(test)
