#!/usr/bin/env python3
# tags: integration router worker
# limit: 120
"""API keys at the front door: who is let in, what a key may ask and how much, operators' routes and their own listener, reading the file
again, tenants that share no prefix, one access line a request."""
import base64
import hashlib
import http.client
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
from cluster import BUILD, Cluster, check, free_port, main  # noqa: E402
from operators import penstock  # noqa: E402
from streams import metric  # noqa: E402

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
ADMIN = {"Authorization": "Bearer root-secret"}


def bearer(secret):
    return {"Authorization": "Bearer " + secret}


def line(name, secret, options=""):
    return f"{name} sha256:{hashlib.sha256(secret.encode()).hexdigest()} {options}\n"


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


class KeyedCluster(FakeCluster):
    """Its own requests are an operator's, unless they say who asks."""
    def request(self, method, path, body=None, headers=None, timeout=60):
        return super().request(method, path, body, ADMIN if headers is None else headers, timeout)


def body(cluster, **more):
    return dict({"model": cluster.model_name(), "prompt": "net " * 20, "max_tokens": 5, "temperature": 0, "ignore_eos": True}, **more)


def ask(cluster, headers, **more):
    code, fields, data = cluster.request("POST", "/v1/completions", body(cluster, **more), headers=headers)
    answer = json.loads(data)
    return code, {name.lower(): value for name, value in fields.items()}, answer


def refused(cluster, headers, code, name, words, **more):
    got, fields, answer = ask(cluster, headers, **more)
    check(got == code and answer["error"]["code"] == name and words in answer["error"]["message"], f"{headers}: {got} {answer}")
    return fields


def who_is_let_in(cluster):
    check(ask(cluster, bearer("plain-secret"))[0] == 200, "a key")
    check(ask(cluster, {"x-api-key": "plain-secret"})[0] == 200, "x-api-key")
    fields = refused(cluster, {}, 401, "invalid_api_key", "missing")
    check(fields["www-authenticate"] == "Bearer", f"{fields}")
    for headers in (bearer("plain-secreT"), bearer("plain-secret "[:-2]), bearer(""), {"x-api-key": "none"}, {"Authorization": "Basic cGxhaW4="},
                    {"Authorization": "plain-secret"}):
        refused(cluster, headers, 401, "invalid_api_key", "")
    # Before the body: nobody uploads for nothing.
    connection = http.client.HTTPConnection("127.0.0.1", cluster.http_port, timeout=10)
    connection.putrequest("POST", "/v1/completions")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", "1000000")
    connection.endheaders()
    check(connection.getresponse().status == 401, "the head is enough")
    connection.close()
    for path in ("/health", "/ready"):
        check(cluster.request("GET", path, headers={})[0] == 200, path)
    check(cluster.request("GET", "/v1/models", headers={})[0] == 401, "models")
    message = {"model": cluster.model_name(), "max_tokens": 5, "messages": [{"role": "user", "content": "a"}]}
    code, _, data = cluster.request("POST", "/v1/messages", message, headers={"x-api-key": "none"})
    check(code == 401 and json.loads(data)["type"] == "error" and json.loads(data)["error"]["type"] == "authentication_error", f"{code} {data}")
    check(cluster.request("POST", "/v1/messages", message, headers={"x-api-key": "plain-secret"})[0] == 200, "a message")


def operators_routes(cluster):
    basic = {"Authorization": "Basic " + base64.b64encode(b"me:root-secret").decode()}
    for path in ("/metrics", "/cluster", "/trend", "/requests"):
        check(cluster.request("GET", path, headers={})[0] == 401, path + " without a key")
        check(cluster.request("GET", path, headers=bearer("plain-secret"))[0] == 403, path + " with a key")
        check(cluster.request("GET", path)[0] == 200, path + " with an admin key")
        check(cluster.request("GET", path, headers=basic)[0] == 200, path + " with an admin key as a password")
    for path in ("/", "/ui/page.js"):
        check(cluster.request("GET", path, headers={})[0] == 200, path + " asks for a key by itself")
    check(cluster.request("GET", "/v1/models", headers=basic)[0] == 200, "a password may be a key")
    order = {"worker": "d1", "action": "uncordon"}
    check(cluster.request("POST", "/admin/workers", order, headers=bearer("plain-secret"))[0] == 403, "an order with a key")
    check(cluster.request("POST", "/admin/workers", order)[0] == 200, "an order with an admin key")
    page = dict(ADMIN, Origin="http://127.0.0.1")
    check(cluster.request("POST", "/admin/workers", order, headers=page)[0] == 403, "an order of a page")


def what_a_key_may_ask(cluster):
    refused(cluster, bearer("batch-secret"), 403, "insufficient_permissions", "may not send interactive requests")
    check(ask(cluster, bearer("batch-secret"), priority=1)[0] == 200, "batch")
    refused(cluster, bearer("other-secret"), 404, "model_not_found", "It may use none.")
    check(json.loads(cluster.request("GET", "/v1/models", headers=bearer("other-secret"))[2])["data"] == [], "it sees no model")
    asked = {"model": cluster.model_name(), "prompt": "a"}
    code, _, data = cluster.request("POST", "/tokenize", asked, headers=bearer("other-secret"))
    check(code == 404 and json.loads(data)["error"]["code"] == "model_not_found", f"nor does it count its tokens: {code} {data}")
    check(cluster.request("POST", "/tokenize", asked, headers=bearer("plain-secret"))[0] == 200, "another key does")
    check(cluster.request("GET", "/v1/models/" + cluster.model_name(), headers=bearer("other-secret"))[0] == 404, "nor one")


def what_a_key_may_see(cluster):
    """A model that a key may not use does not exist for it, whatever is wrong with the request besides."""
    def listed(secret):
        return {m["id"] for m in json.loads(cluster.request("GET", "/v1/models", headers=bearer(secret))[2])["data"]}

    def sentence(secret, model, **more):
        code, _, answer = ask(cluster, bearer(secret), model=model, **more)
        check(code == 404 and answer["error"]["param"] == "model", f"{code} {answer}")
        return answer["error"]["message"].replace(model, "X")
    name = cluster.model_name()
    check(listed("plain-secret") == {name, "tiny", "small"} and listed("tiny-secret") == {"tiny", "small"}, "each its own")
    wanted = 'The model "X" does not exist for this API key. It may use "tiny".'
    for model in (name, "nothing"):
        for more in ({}, {"prompt": "net " * 9000}, {"temperature": -1}):
            check(sentence("tiny-secret", model, **more) == wanted, f"{model} {more}")
    check(sentence("plain-secret", "nothing") == f'The model "X" does not exist. This router serves "{name}", "tiny".', "who may see all")
    check(ask(cluster, bearer("tiny-secret"), model="small")[0] == 503, "it may ask for its own, which has no worker")
    code, _, data = cluster.request("POST", "/tokenize", {"prompt": "a"}, headers=bearer("tiny-secret"))
    check(code == 200, f"without a name the first of its models counts: {code} {data}")
    code, _, data = cluster.request("GET", "/tokenizer_info", headers=bearer("tiny-secret"))
    check([t["model"] for t in json.loads(data)["tokenizers"]] == ["tiny"], f"{data}")
    for hidden in (name, "nothing"):
        check(cluster.request("GET", "/v1/models/" + hidden, headers=bearer("tiny-secret"))[0] == 404, hidden)


def b021_pages_of_other_origins_may_call(cluster):
    """A preflight comes without a key; what follows it must have one, and tells the page of it."""
    page = {"Origin": "https://good.example"}
    code, fields, _ = cluster.request("OPTIONS", "/v1/completions", headers=dict(page, **{"Access-Control-Request-Method": "POST",
                                                                                       "Access-Control-Request-Headers": "authorization"}))
    check(code == 204 and fields["Access-Control-Allow-Headers"] == "authorization", f"{code} {fields}")
    check("Access-Control-Allow-Credentials" not in fields, "stored passwords stay at home")
    fields = refused(cluster, page, 401, "invalid_api_key", "missing")
    check(fields["access-control-allow-origin"] == "https://good.example", f"{fields}")
    check(ask(cluster, dict(page, **bearer("plain-secret")))[0] == 200, "with a key")


def how_much(cluster):
    code, fields, _ = ask(cluster, bearer("slow-secret"))
    check(code == 200 and fields["x-ratelimit-limit-requests"] == "2" and fields["x-ratelimit-remaining-requests"] == "1" and
          float(fields["x-ratelimit-reset-requests"][:-1]) > 25, f"{fields}")
    check(ask(cluster, bearer("slow-secret"))[0] == 200, "the second")
    fields = refused(cluster, bearer("slow-secret"), 429, "rate_limit_exceeded", "2 requests a minute")
    check(20 <= int(fields["retry-after"]) <= 30 and fields["x-ratelimit-remaining-requests"] == "0", f"{fields}")
    fields = refused(cluster, bearer("small-secret"), 429, "rate_limit_exceeded", "it will never fit", prompt="net " * 200)
    check("retry-after" not in fields, "to come again does not help")
    code, fields, answer = ask(cluster, bearer("small-secret"))
    used = answer["usage"]["prompt_tokens"]
    check(code == 200 and fields["x-ratelimit-limit-tokens"] == "60" and fields["x-ratelimit-remaining-tokens"] == str(60 - used), f"{fields} {answer}")
    refused(cluster, bearer("small-secret"), 429, "rate_limit_exceeded", "60 tokens a minute", prompt="net " * 40)
    check(ask(cluster, bearer("small-secret"), max_tokens=100)[0] == 200, "as long as the prompt fits")
    fields = refused(cluster, bearer("small-secret"), 429, "rate_limit_exceeded", "60 tokens a minute", prompt="a")
    check(int(fields["retry-after"]) > 60, f"its answer is a debt: {fields}")
    events = []
    long = threading.Thread(target=lambda: events.append(ask(cluster, bearer("one-secret"), max_tokens=400)[0]))
    long.start()
    cluster.until("it runs", lambda: metric(cluster, "penstock_requests", state="running") > 0)
    refused(cluster, bearer("one-secret"), 429, "rate_limit_exceeded", "1 requests under way")
    long.join()
    check(events == [200] and ask(cluster, bearer("one-secret"))[0] == 200, "after it there is room")


def what_is_told(cluster):
    cluster.request("POST", "/v1/completions", body(cluster, prompt="a-secret-prompt"), headers=dict(
        bearer("plain-secret"), **{"X-Request-Id": "mine-1", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}))
    cluster.request("GET", "/nothing?a-secret-query", headers={})
    cluster.request("GET", "/v1/models", headers={"X-Forwarded-For": "1.1.1.1, 192.0.2.7"})  # from a trusted proxy
    for wanted in (r" access method POST route /v1/completions status 200 ms [\d.]+ bytes \d+ client 127.0.0.1 key plain id mine-1 trace " + TRACE,
                   r" access method POST route /v1/completions status 401 .* key - ", r" access method GET route other status 404 ",
                   r" access method GET route /v1/models status 401 .* client 192\.0\.2\.7 ",
                   r" access method POST route /v1/completions status 429 .* key slow "):
        cluster.until(f"the log has {wanted}", lambda: re.search(wanted, cluster.router.text()), 5)
    check("secret" not in cluster.router.text(), "no key, prompt or query is in the log")
    check(cluster.metric('penstock_key_requests_total{key="slow",code="429"}') == 1 and
          cluster.metric('penstock_key_requests_total{key="slow",code="200"}') == 2, "requests by key")
    check(cluster.metric('penstock_key_tokens_total{key="slow",kind="completion"}') == 10, "tokens by key")
    for reason in ("missing", "unknown", "not_admin", "requests", "tokens", "too_large", "concurrent", "model", "class"):
        check(cluster.metric(f'penstock_key_refusals_total{{reason="{reason}"}}') > 0, reason)
    check("secret" not in cluster.request("GET", "/metrics")[2].decode(), "no key is in the metrics")


def reading_again(cluster, path):
    with open(path) as f:
        before = f.read()
    for text, said in (("nonsense\n", f"reload keeps the API keys that it has: {path}:1: key nonsense: behind"), ("", "holds no key")):
        write(path, text)
        cluster.router.kill(signal.SIGHUP)
        cluster.until(said, lambda: said in cluster.router.text())
        check(ask(cluster, bearer("plain-secret"))[0] == 200, "the old ones stay")
    write(path, before.replace(line("plain", "plain-secret"), line("plain", "new-secret")))
    cluster.router.kill(signal.SIGHUP)
    cluster.until("it is read", lambda: "reload knows 9 API keys" in cluster.router.text())
    refused(cluster, bearer("plain-secret"), 401, "invalid_api_key", "")
    check(ask(cluster, bearer("new-secret"))[0] == 200, "the new secret")
    refused(cluster, bearer("slow-secret"), 429, "rate_limit_exceeded", "2 requests a minute")  # counts stay


def a_listener_for_operators(path):
    port = free_port()

    class Two(FakeCluster):
        def request(self, method, path, body=None, headers=None, timeout=60):
            main_port, self.http_port = self.http_port, port
            try:
                return super().request(method, path, body, headers, timeout)
            finally:
                self.http_port = main_port

    with Two(router=[f"security.keys_file={path}", f"http.admin_listen=127.0.0.1:{port}", "admin.access=key"]) as cluster:
        cluster.fake("decode", "d1")
        for where in ("/metrics", "/cluster", "/", "/v1/models", "/health"):
            check(cluster.request("GET", where)[0] == 200, where + " needs no key here")
        for where, expect in (("/metrics", 404), ("/cluster", 404), ("/", 404), ("/v1/models", 401), ("/health", 200)):
            check(FakeCluster.request(cluster, "GET", where)[0] == expect, where + " of http.listen")
        order = {"worker": "d1", "action": "cordon"}
        check(cluster.request("POST", "/admin/workers", order)[0] == 403, "admin.access key is a key all the same")
        check(cluster.request("POST", "/admin/workers", order, headers=ADMIN)[0] == 200, "an admin key")


def the_program_shows_a_key(cluster, folder):
    write(os.path.join(folder, "root.key"), "root-secret\n")
    check("API key is missing" in penstock(cluster, "workers", expect=1), "without a key")
    check("d1" in penstock(cluster, "workers", "--key-file", os.path.join(folder, "root.key")), "with one")


def tenants_share_no_prefix(folder, path):
    model = os.path.join(folder, "tiny.gguf")
    subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), model], check=True)

    class Keyed(Cluster):
        def request(self, method, where, body=None, headers=None, timeout=60):
            return super().request(method, where, body, headers or ADMIN, timeout)

    def cached(cluster, secret):
        answer = cluster.json("POST", "/v1/completions", {"model": cluster.model_name(), "prompt": "one two three four five six " * 30, "max_tokens": 2,
                                                          "temperature": 0}, headers=bearer(secret))
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["choices"][0]["text"]

    for isolation in ("true", "false"):
        with Keyed(0, 1, model=model, router=[f"security.keys_file={path}", f"security.tenant_isolation={isolation}"],
                   decode_set=["security.zero_pages=true"]) as cluster:
            first = cached(cluster, "new-secret")
            again = cached(cluster, "new-secret")
            mate = cached(cluster, "mate-secret")  # of tenant plain
            other = cached(cluster, "root-secret")
            check(first[0] == 0 and again[0] > 0 and mate[0] == again[0], f"one tenant shares: {first} {again} {mate}")
            check((other[0] == 0) == (isolation == "true"), f"isolation {isolation}: another tenant: {other}")
            check(len({first[1], again[1], mate[1], other[1]}) == 1, "the text is the same")


def test():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "keys")
        write(path, "# for the test\n" + line("root", "root-secret", "admin") + line("plain", "plain-secret") + line("batch", "batch-secret", "class=batch") +
              line("other", "other-secret", "models=another-model") + line("slow", "slow-secret", "requests_per_minute=2") +
              line("small", "small-secret", "tokens_per_minute=60") + line("one", "one-secret", "concurrent=1") +
              line("mate", "mate-secret", "tenant=plain") + line("tiny", "tiny-secret", "models=small"))
        tiny = os.path.join(folder, "tiny.gguf")
        subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), tiny], check=True)
        with KeyedCluster(router=[f"security.keys_file={path}", "http.cors_origins=https://good.example", "http.trusted_proxies=127.0.0.1",
                                  "router.worker_wait=0", f'models=({{ file = "{tiny}"; name = "tiny"; aliases = ["small"]; }})']) as cluster:
            cluster.fake("decode", "d1", step_ms=5)
            who_is_let_in(cluster)
            operators_routes(cluster)
            what_a_key_may_ask(cluster)
            what_a_key_may_see(cluster)
            b021_pages_of_other_origins_may_call(cluster)
            how_much(cluster)
            what_is_told(cluster)
            the_program_shows_a_key(cluster, folder)
            reading_again(cluster, path)
        a_listener_for_operators(path)
        tenants_share_no_prefix(folder, path)


main(test)
