#!/usr/bin/env python3
# tags: integration router
# limit: 120
"""`penstock` for people: a conversation on a terminal and in a pipe, the live table, keys that it makes, https, and the programs beside it."""
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fakes import FakeCluster  # noqa: E402
from cluster import SLOW, check, free_port, main  # noqa: E402
from http_tls import TlsCluster, certificate  # noqa: E402
from operators import PROGRAM  # noqa: E402
from streams import metric  # noqa: E402


class Terminal:
    """A program on a pseudo terminal; `wait` returns what it has written until a pattern comes."""
    def __init__(self, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(PROGRAM, [PROGRAM] + list(arguments))
        self.text = ""
        self.ended = None

    def read(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            self.text += data.decode("utf-8", "replace").replace("\r\n", "\n")
            return bool(data)
        return True

    def wait(self, pattern, seconds=20):
        end = time.monotonic() + seconds * SLOW
        while not (found := re.search(pattern, self.text, re.S)):
            check(time.monotonic() < end and self.read(0.2), f"{pattern!r} did not come: {self.text!r}")
        said, self.text = self.text[:found.end()], self.text[found.end():]
        return said

    def type(self, text):
        os.write(self.fd, text.encode())

    def exit_status(self):
        end = time.monotonic() + 20 * SLOW
        while time.monotonic() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
        check(False, f"it does not end: {self.text!r}")


def run(*arguments, expect=0, sent=None):
    done = subprocess.run([PROGRAM] + list(arguments), input=sent, capture_output=True, text=True, timeout=60 * SLOW,
                          **({} if sent is not None else {"stdin": subprocess.DEVNULL}))
    check(done.returncode == expect, f"penstock {arguments}: exit {done.returncode}: {done.stdout}{done.stderr}")
    return done


def url_of(cluster):
    return f"http://{cluster.router_host}:{cluster.http_port}"


def prompt_tokens(cluster):
    return json.loads(cluster.request("GET", "/requests")[2])["requests"][0]["prompt_tokens"]


def a_conversation(cluster):
    t = Terminal("chat", "--router", url_of(cluster), "--system", "Be brief.")
    t.wait(re.escape(cluster.model_name()) + r"; /help tells .*> ")
    t.type("/help\n")
    check("/clear" in t.wait(r"Ctrl-C .*> "), "what there is")
    t.type("hello\n")
    said = t.wait(r"\d+ tokens, first after [\d.]+ s, [\d.]+ tokens/s.*?> ")
    check("penstock:" not in said, said)
    first = prompt_tokens(cluster)
    t.type("and more\n")
    t.wait(r"tokens/s.*?> ")
    check(prompt_tokens(cluster) > first + 5, "the conversation goes along")
    t.type("/clear\n")
    t.wait(r"\(forgotten\).*> ")
    t.type("hello\n")
    t.wait(r"tokens/s.*?> ")
    check(prompt_tokens(cluster) == first, "it was forgotten, but for the system message")
    t.type("/system\n")
    t.wait(r"begun anew with no system message\)\n> ")
    t.type("hello\n")
    t.wait(r"tokens/s.*?> ")
    check(prompt_tokens(cluster) != first, "another system message (the template has one of its own)")
    return t


def an_answer_is_stopped(cluster, t):
    """Ctrl-C stops the answer, on the worker too, and the next question is answered; at the prompt it throws the line away."""
    before = metric(cluster, "penstock_requests_total", outcome="abort")
    t.type("tell me more\n")
    t.wait(r"tell me more\n.*\w+")  # behind its echo it writes
    t.type("\x03")
    t.wait(r"\(stopped\)\n> ")
    cluster.until("the router ended it", lambda: metric(cluster, "penstock_requests_total", outcome="abort") == before + 1)
    t.type("never sent\x03")
    t.wait(r"\n> ")
    t.type("hello\n")
    t.wait(r"tokens/s.*?> ")
    t.type("\x04")
    check(t.exit_status() == 0, "Ctrl-D ends it")


def in_a_pipe(cluster):
    url = url_of(cluster)
    done = run("chat", "--router", url, sent="One question\nof two lines\n")
    check(done.stderr == "" and len(done.stdout) > 10 and "\033" not in done.stdout and done.stdout.endswith("\n"), f"{done}")
    for arguments, sent, words in (([], "", "must be a question"), (["--model", "none"], "a", "none"), (["--router", f"http://127.0.0.1:{free_port()}"], "a", "cannot be reached")):
        done = run("chat", *(["--router", url] if "--router" not in arguments else []), *arguments, expect=1, sent=sent)
        check(words in done.stderr and done.stderr.count("\n") == 1, f"{arguments}: {done}")


def the_table(cluster):
    url, nobody = url_of(cluster), f"http://127.0.0.1:{free_port()}"
    text = run("status", "--router", url, "--once").stdout
    check(re.search(r"router " + url + r"  ready  up \d+ s", text) and re.search(r"\n  d1 +decode +alive ", text) and "tok/s" in text, text)
    text = run("status", "--router", url, "--router", nobody).stdout
    check(f"router {nobody}: the router {nobody} cannot be reached" in text, text)
    both = json.loads(run("status", "--router", url, "--router", nobody, "--json").stdout)["routers"]
    check(both[0]["cluster"]["workers"][0]["name"] == "d1" and both[0]["decode_tokens_per_s"] == 0 and "error" in both[1], f"{both}")
    check("cannot be reached" in run("status", "--router", nobody, expect=1).stderr, "nobody answers")
    t = Terminal("status", "--router", url)
    for _ in range(3):
        t.wait(r"\x1b\[H\x1b\[J.*d1 +decode +alive ")
    t.type("\x03")
    check(t.exit_status() == 0, "Ctrl-C ends it")


def a_key(folder):
    path = os.path.join(folder, "keys")
    secrets = {}
    for name, limits in (("root", ["admin"]), ("people", ["requests_per_minute=100"])):
        done = run("key", name, *limits)
        with open(path, "a") as f:
            f.write(done.stdout)
        secrets[name] = re.search(r"psk-[0-9a-f]{48}$", done.stderr.strip()).group(0)
        with open(os.path.join(folder, name), "w") as f:
            f.write(secrets[name] + "\n")
    check(secrets["people"] not in open(path).read(), "the file does not hold the key")
    made = json.loads(run("key", "x", "--json").stdout)
    check(made["key"].startswith("psk-") and made["line"].startswith("x sha256:"), f"{made}")
    check("cannot stand in a line" in run("key", "two words", expect=2).stderr, "a name that is none")
    for arguments, sentence in ((["n@me"], "a key's name is 1 to 64 of letters"), (["x" * 65], "a key's name is 1 to 64"), (["#x"], "a key's name is"),
                                (["x", "requests_per_minute=0"], 'key x has "requests_per_minute=0"; it must be a whole number above 0'),
                                (["x", "concurrent=-1"], "must be a whole number"), (["x", "concurrent=9e9"], "must be a whole number"),
                                (["x", "tokens_per_minute"], "must be a whole number"), (["x", "tokens_per_hour=1"], "right is requests_per_minute="),
                                (["x", "class=slow"], "right is interactive, batch"), (["x", "models=,"], "right is one to 64 models"),
                                (["x", "tenant=a/b"], "right is 1 to 64"), (["x", "admin=yes"], "right is requests_per_minute="), (["x", "admin", ""], "cannot stand"),
                                (["x", "admin", "concurrent=\n1"], "cannot stand")):
        refused = run("key", *arguments, expect=2)
        check(sentence in refused.stderr and refused.stderr.count("\n") <= 2 and refused.stdout == "", f"{arguments}: {refused}")

    class Keyed(FakeCluster):
        def request(self, method, where, body=None, headers=None, timeout=60):
            return super().request(method, where, body, {"Authorization": "Bearer " + secrets["root"]}, timeout)

    with Keyed(router=[f"security.keys_file={path}"]) as cluster:
        cluster.fake("decode", "d1", answer=20)
        url = url_of(cluster)
        check(len(run("chat", "--router", url, "--key-file", f"{folder}/people", sent="a").stdout) > 1, "a key may chat")
        check("API key is missing" in run("chat", "--router", url, expect=1, sent="a").stderr, "nobody may not")
        rows = [json.loads(line) for line in loads(url, "--key-file", f"{folder}/people").stdout.splitlines()]
        check(rows[-1]["requests"] == 3 and rows[-1]["tokens"] == 15, f"a key may load: {rows}")
        check("API key is missing" in loads(url, expect=1).stderr, "nobody may not load")
        check("cannot be read" in loads(url, "--key-file", f"{folder}/nothing", expect=1).stderr, "no key file")
        check("for operators" in run("status", "--router", url, "--key-file", f"{folder}/people", expect=1).stderr, "nor may it look")
        check("d1" in run("status", "--router", url, "--key-file", f"{folder}/root", "--once").stdout, "an admin key may")


def loads(url, *arguments, **more):
    return run("bench", "serve", "--base-url", url, "--streams", "2", "--requests", "3", "--prompt-tokens", "40", "--max-tokens", "5", "--json", *arguments,
               **more)


def over_tls(folder):
    if not shutil.which("openssl"):
        print("without an openssl command, https is not tried")
        return
    certificate(folder, "first")
    certificate(folder, "second")
    with TlsCluster(folder, "first", router=[f"http.certificate={folder}/first.pem", f"http.certificate_key={folder}/first.key",
                                             "http.handshake_deadline=60s"]) as cluster:
        cluster.fake("decode", "d1", answer=20)
        for host in ("localhost", "127.0.0.1"):
            url = f"https://{host}:{cluster.http_port}"
            check("d1" in run("workers", "--router", url, "--ca", f"{folder}/first.pem").stdout, url)
            check(len(run("chat", "--router", url, "--ca", f"{folder}/first.pem", sent="a").stdout) > 1, url)
            check(json.loads(loads(url, "--ca", f"{folder}/first.pem").stdout.splitlines()[-1])["errors"] == 0, url)
            check("is not trusted" in loads(url, "--ca", f"{folder}/second.pem", expect=1).stderr, "another authority")
            check("is not trusted" in run("workers", "--router", url, "--ca", f"{folder}/second.pem", expect=1).stderr, "another authority")
            check("is not trusted" in run("workers", "--router", url, expect=1).stderr, "the system's authorities")
        check("holds no certificates" in run("workers", "--router", url, "--ca", f"{folder}/first.key", expect=1).stderr, "no authority")
        check("this port speaks TLS" in run("workers", "--router", url.replace("https", "http"), expect=1).stderr, "plain")


def the_programs_beside_it():
    for name in ("bench", "eval"):
        check(f"usage: penstock-{name}" in run(name, "--help").stdout, name)
        check(run(name, "no-such-thing", expect=2).stderr, "its own mistakes are its own")


def mistakes():
    for arguments, words in ((["chat", "hello"], "chat takes no arguments"), (["workers", "--model", "m"], "an option does not go with workers"),
                             (["chat", "--once"], "an option does not go with chat"), (["key"], "right is: penstock key NAME"),
                             (["drain", "a", "--router", "http://a", "--router", "http://b"], "drain talks to one router"), (["chat", "--model"], "--model needs a value")):
        check(words in run(*arguments, expect=2).stderr, f"{arguments}")


def test():
    with FakeCluster() as cluster:
        cluster.fake("decode", "d1", step_ms=10, answer=100)
        an_answer_is_stopped(cluster, a_conversation(cluster))
        in_a_pipe(cluster)
        the_table(cluster)
    with tempfile.TemporaryDirectory() as folder:
        a_key(folder)
        over_tls(folder)
    the_programs_beside_it()
    mistakes()


if __name__ == "__main__":
    main(test)
