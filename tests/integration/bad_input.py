#!/usr/bin/env python3
# tags: integration router
# limit: 180
"""What is wrong with a request, and what is answered: status, code and param, for every field and for what surrounds the body.

The tables are the documentation: a row is (fields of the body, status, code, param)."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fakes import FakeCluster  # noqa: E402
from raw_http import body, request_bytes, talk  # noqa: E402
from cluster import check, main, run_parts  # noqa: E402

UNSUPPORTED = "unsupported_parameter"
HUGE = 10 ** 18
# Wrong types of a number, an integer, a boolean, a string, a list and an object.
NO_NUMBER = ["1", True, [], {}]
NO_INTEGER = NO_NUMBER + [1.5]
NO_BOOLEAN = ["true", 1, [], {}]
NO_STRING = [1, True, [], {}]
NO_LIST = [1, True, "x", {}]
NO_OBJECT = [1, True, "x", []]

# A field of both OpenAI endpoints, and values that are refused with 400 and its name.
REFUSED = {
    "model": NO_STRING,
    "temperature": NO_NUMBER + [-0.1, 2.1, HUGE], "top_p": NO_NUMBER + [-0.1, 1.1], "min_p": NO_NUMBER + [-0.1, 1.1],
    "typical_p": NO_NUMBER + [0, -1, 1.1], "top_k": NO_INTEGER + [-2, HUGE], "seed": NO_INTEGER,
    "repetition_penalty": NO_NUMBER + [0, -1, 101], "frequency_penalty": NO_NUMBER + [-2.1, 2.1], "presence_penalty": NO_NUMBER + [-2.1, 2.1],
    "max_tokens": NO_INTEGER + [0, -1], "max_completion_tokens": NO_INTEGER + [0, -1], "min_tokens": NO_INTEGER + [-1, HUGE],
    "n": NO_INTEGER + [0, -1, 129, HUGE], "priority": NO_INTEGER + [-1, 2], "timeout": NO_NUMBER + [0, -1, 1e9],
    "stream": NO_BOOLEAN, "ignore_eos": NO_BOOLEAN, "skip_special_tokens": NO_BOOLEAN, "include_stop_str_in_output": NO_BOOLEAN,
    "logits_hash": NO_BOOLEAN, "store": NO_BOOLEAN,
    "stop": [1, True, {}, "", [""], [1], [None], ["x"] * 17], "stop_token_ids": NO_LIST + [[0] * 99],
    "logit_bias": NO_OBJECT + [{"x": 1}, {"-1": 1}, {"5": "1"}, {"5": 101}, {"999999999": 1}],
    "stream_options": NO_OBJECT + [{"include_usage": True}],  # without stream
    "user": NO_STRING, "safety_identifier": NO_STRING, "prompt_cache_key": NO_STRING, "prompt_cache_retention": NO_STRING,
    "prompt_logprobs": NO_INTEGER + [-1, 21], "prompt_cache_options": NO_OBJECT, "prediction": NO_OBJECT,
    "metadata": NO_OBJECT + [{"a": 1}, {"a" * 65: "b"}, {"a": "b" * 513}, {str(i): "" for i in range(17)}],
    "service_tier": NO_STRING + ["gold", ""],
}
REFUSED_COMPLETION = {
    "prompt": [1, True, {}, "", [], [""], [[]]], "best_of": NO_INTEGER + [0, -1, 129], "echo": NO_BOOLEAN,
    "logprobs": ["1", True, -1, 21, 1.5],
}
REFUSED_CHAT = {
    "messages": [1, True, "x", {}, []], "logprobs": [1, "true"], "top_logprobs": NO_INTEGER + [-1, 21, 3], "chat_template_kwargs": NO_OBJECT,
    "add_generation_prompt": NO_BOOLEAN, "continue_final_message": NO_BOOLEAN,
}
# Refused by name, because they would change the answer.
UNSERVED = {"suffix": "x", "use_beam_search": True, "length_penalty": 2, "bad_words": ["x"], "truncate_prompt_tokens": 5,
            "lora": "x", "adapter": "x", "modalities": ["audio"], "audio": {}, "moderation": {"model": "x"}, "web_search_options": {}, "functions": [{}],
            "function_call": "auto"}
# Rows with a param of their own.
ROWS = [
    ("completions", {"model": "other"}, 404, "model_not_found", "model"),
    ("completions", {"max_tokens": HUGE}, 400, "context_length_exceeded", "max_tokens"),
    ("completions", {"prompt": [7] * 20000}, 400, "context_length_exceeded", "prompt"),
    ("completions", {"prompt": "word " * 20000}, 400, "context_length_exceeded", "prompt"),
    ("completions", {"prompt": ["a", "word " * 20000]}, 400, "context_length_exceeded", "prompt[1]"),
    ("completions", {"prompt": [5, -1]}, 400, None, "prompt[1]"), ("completions", {"prompt": [5, 10 ** 9]}, 400, None, "prompt[1]"),
    ("completions", {"prompt": [[5], [1.5]]}, 400, None, "prompt[1][0]"), ("completions", {"prompt": ["a", 5]}, 400, None, "prompt[1]"),
    ("completions", {"prompt": [[1] * 260] * 100, "prompt_logprobs": 20}, 400, None, "prompt_logprobs"),
    ("completions", {"prompt": [[1] * 260] * 100, "echo": True, "logprobs": 20}, 400, None, "logprobs"),
    ("completions", {"prompt": ["a"] * 129}, 400, None, "prompt"), ("completions", {"n": 2, "best_of": 1}, 400, None, "best_of"),
    ("completions", {"best_of": 2, "stream": True}, 400, None, "best_of"), ("completions", {"min_tokens": 9, "max_tokens": 5}, 400, None, "min_tokens"),
    ("completions", {"stop_token_ids": [-1]}, 400, None, "stop_token_ids[0]"),
    ("completions", {"stream": True, "stream_options": {"include_usage": 1}}, 400, None, "stream_options.include_usage"),
    ("chat/completions", {"messages": [{"role": "user", "content": "word " * 20000}]}, 400, "context_length_exceeded", "messages"),
    ("chat/completions", {"messages": [{"role": "robot", "content": "x"}]}, 400, None, "messages[0].role"),
    ("chat/completions", {"messages": [{"content": "x"}]}, 400, None, "messages[0].role"), ("chat/completions", {"messages": [1]}, 400, None, "messages[0]"),
    ("chat/completions", {"model": "other"}, 404, "model_not_found", "model"),
]


def expect(cluster, route, asked, status, code, param):
    found, _, data = cluster.request("POST", "/v1/" + route, asked, timeout=20)
    text = str(asked)[:160]
    check(found == status, f"{route} {text}: {found} {data[:300]}, not {status}")
    error = json.loads(data)["error"]
    check(set(error) == {"message", "type", "param", "code"} and len(error["message"]) > 8, f"{route} {text}: {error}")
    check(error["code"] == code and error["param"] == param, f"{route} {text}: {error}, not code {code} param {param}")
    return error["message"]


def fields(cluster):
    count = 0
    for route, own in (("completions", REFUSED_COMPLETION), ("chat/completions", REFUSED_CHAT)):
        for name, values in {**REFUSED, **own}.items():
            for value in values:
                code = "model_not_found" if name == "model" and isinstance(value, str) else None
                asked = body(cluster, route, **{name: value})
                if name == "max_completion_tokens":
                    del asked["max_tokens"]
                found, _, data = cluster.request("POST", "/v1/" + route, asked, timeout=20)
                error = json.loads(data).get("error", {})
                named = error.get("param") or ""
                check(found == 400 and named.split("[")[0].split(".")[0] == name and error["code"] == code,
                      f"{route} {name}: {str(value)[:60]}: {found} {data[:300]}")
                count += 1
            if name not in ("model", "prompt", "messages"):  # null is absence
                short = {"max_completion_tokens": 2} if name == "max_tokens" else {}
                cluster.json("POST", "/v1/" + route, body(cluster, route, **short, **{name: None}), timeout=20)
        for name, value in UNSERVED.items():
            expect(cluster, route, body(cluster, route, **{name: value}), 400, UNSUPPORTED, name)
            cluster.json("POST", "/v1/" + route, body(cluster, route, **{name: None}))
    print(count, "values of fields are refused by name")


def rows(cluster):
    for route, change, status, code, param in ROWS:
        message = expect(cluster, route, body(cluster, route, **change), status, code, param)
        if code == "context_length_exceeded" and param != "prompt":
            check("maximum context length is " in message and message.count(" tokens") >= 2, f"both numbers: {message}")


def bodies(cluster):
    """What is no JSON object, or JSON that hides something."""
    good = json.dumps(body(cluster, "completions"))[:-1].encode()
    surrogate = b',"user":"\\ud800"}'
    for raw in (b"", b"{", b"[]", b"null", b'"x"', b"nonsense", good, good + b"} x", good + b',"n":NaN}', good + b',"n":Infinity}',
                good + b',"n":1,"n":1}', good + b',"user":"\xff"}', good + b',"user":"\xc0\xaf"}', good + surrogate, good + b',"user":"\\udc00\\ud800"}',
                good + b',"x":' + b"[" * 1000 + b"]" * 1000 + b"}", good + b',"temperature":1e999}', good + b',"seed":99999999999999999999}',
                good + b',"user":"a\x01b"}', b"\xef\xbb\xbf" + good + b"}"):
        code, _, data = cluster.request("POST", "/v1/completions", raw)
        error = json.loads(data)["error"]
        check(code == 400 and error["message"] and error["param"] is None, f"{raw[:20]}..{raw[-60:]}: {code} {data[:200]}")
    cluster.json("POST", "/v1/completions", good + b',"user":"\\ud83d\\ude00\\u0000"}')


def surroundings(cluster):
    good = json.dumps(body(cluster, "completions")).encode()
    for method, path, kind, status in (("GET", "/v1/completions", None, 405), ("PUT", "/v1/completions", None, 405), ("POST", "/v1/models", "application/json", 405),
                                       ("POST", "/v1/completion", "application/json", 404), ("POST", "/V1/COMPLETIONS", "application/json", 404),
                                       ("POST", "/v1/completions/", "application/json", 404), ("POST", "/v1/completions", "text/plain", 415),
                                       ("POST", "/v1/completions", "application/x-www-form-urlencoded", 415)):
        code, headers, data = cluster.request(method, path, good if method != "GET" else None, headers={"Content-Type": kind} if kind else None)
        check(code == status and json.loads(data)["error"]["message"], f"{method} {path} {kind}: {code} {data[:200]}")
        check(code != 405 or headers["Allow"], f"{method} {path}: {headers}")


def framing(cluster):
    data = json.dumps(body(cluster, "completions")).encode()
    chunked = b"%x\r\n%s\r\n%x;a=b\r\n%s\r\n0\r\n\r\n" % (10, data[:10], len(data) - 10, data[10:])
    got = talk(cluster, [request_bytes(cluster, b"Transfer-Encoding: chunked\r\n", chunked)])
    check(got.startswith(b"HTTP/1.1 200"), f"chunked: {got[:200]}")
    got = talk(cluster, [request_bytes(cluster, b"Transfer-Encoding: chunked\r\n", b"zz\r\n" + data)])
    check(got.startswith(b"HTTP/1.1 400"), f"a chunk without a size: {got[:200]}")
    got = talk(cluster, [request_bytes(cluster, b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", chunked)])
    check(got.startswith(b"HTTP/1.1 400"), f"two lengths: {got[:200]}")
    pipelined = request_bytes(cluster, close=False) + request_bytes(cluster, data=b"{", close=False) + request_bytes(cluster)
    got = talk(cluster, [pipelined])
    check(got.count(b"HTTP/1.1 200") == 2 and got.count(b"HTTP/1.1 400") == 1 and got.index(b" 400 ") < got.rindex(b" 200 "), f"pipelined: {got[:600]}")
    whole = request_bytes(cluster)
    got = talk(cluster, [whole[i:i + 16] for i in range(0, len(whole), 16)], pause=0.01)
    check(got.startswith(b"HTTP/1.1 200"), f"a slow client: {got[:200]}")
    check(talk(cluster, [whole[:-5]], half=True)[:12] in (b"", b"HTTP/1.1 400"), "half a body, half closed")
    check(talk(cluster, [b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"]).startswith(b"HTTP/1.1 4"), "a huge length")
    large = talk(cluster, [request_bytes(cluster, data=b" " * (10 << 20))])
    check(large == b"" or large.startswith(b"HTTP/1.1 413"), f"10 MB: {large[:200]}")
    check(cluster.json("POST", "/v1/completions", body(cluster, "completions"))["choices"], "it goes on serving")


def test():
    with FakeCluster() as cluster:
        cluster.fake("prefill")
        cluster.fake("decode")
        run_parts((fields, rows, bodies, surroundings, framing), cluster)
        cluster.check_idle()


main(test)
