#!/usr/bin/env python3
# tags: integration router
# limit: 120
"""TLS at the front door: Python's ssl and curl as clients, versions and protocols, a renewed certificate without a cut, clients that
speak something else or nothing, and files that do not fit refused at the start."""
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fakes import FakeCluster  # noqa: E402
from cluster import BUILD, SLOW, Cluster, check, main, skip  # noqa: E402
from streams import metric  # noqa: E402


def certificate(folder, name):
    """A self-signed certificate of localhost, and its key."""
    subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-x509", "-days", "30",
                    "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem", "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)


class TlsCluster(FakeCluster):
    """Its own requests go through TLS, checked against the certificate of `trusted`."""
    def __init__(self, folder, trusted, **more):
        self.trusted = f"{folder}/{trusted}.pem"
        super().__init__(**more)

    def context(self):
        return ssl.create_default_context(cafile=self.trusted)

    def open(self, timeout=60):
        return http.client.HTTPSConnection("127.0.0.1", self.http_port, timeout=timeout, context=self.context())

    def request(self, method, path, body=None, headers=None, timeout=60):
        connection = self.open(timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               dict({"Content-Type": "application/json"} if body is not None else {}, **(headers or {})))
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        except (ConnectionError, ssl.SSLError) as e:
            return 0, {}, str(e).encode()
        finally:
            connection.close()

    def socket(self, context):
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.http_port), timeout=60), server_hostname="localhost")


def body(cluster, **more):
    return dict({"model": cluster.model_name(), "prompt": "net " * 20, "max_tokens": 20, "temperature": 0, "ignore_eos": True}, **more)


def clients_are_served(cluster):
    check(cluster.json("POST", "/v1/completions", body(cluster))["usage"]["completion_tokens"] == 20, "Python's ssl")
    if shutil.which("curl"):
        url = f"https://localhost:{cluster.http_port}/v1/models"
        done = subprocess.run(["curl", "-sS", "--cacert", cluster.trusted, url], capture_output=True, text=True)
        check(json.loads(done.stdout)["object"] == "list", f"curl: {done}")
        stranger = subprocess.run(["curl", "-sS", url], capture_output=True, text=True)
        check(stranger.returncode == 60, f"curl checks the certificate: {stranger}")
    connection = cluster.open()
    for _ in range(3):  # kept alive
        connection.request("GET", "/health")
        check(connection.getresponse().read() == b'{"status":"ok"}', "a kept connection")
    connection.close()


def versions_and_protocols(cluster):
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = cluster.context()
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["h2", "http/1.1"])
        with cluster.socket(context) as s:
            check(s.selected_alpn_protocol() == "http/1.1", f"{version}: {s.selected_alpn_protocol()}")
    context = cluster.context()
    context.set_alpn_protocols(["h2"])
    try:
        cluster.socket(context).close()
        check(False, "a client that speaks only h2 is not told")
    except ssl.SSLError as e:
        check("ALERT_NO_APPLICATION_PROTOCOL" in str(e) or "alert no application protocol" in str(e), str(e))
    context = cluster.context()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is old is the point
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    try:
        cluster.socket(context).close()
        check(False, "TLS 1.1 was spoken")
    except (ssl.SSLError, OSError):
        pass


def strangers(cluster):
    """Plain HTTP is told so; noise, silence and half a handshake end by themselves, and nobody else notices."""
    silent = socket.create_connection(("127.0.0.1", cluster.http_port), timeout=60)
    half = socket.create_connection(("127.0.0.1", cluster.http_port), timeout=60)
    half.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
    plain = http.client.HTTPConnection("127.0.0.1", cluster.http_port, timeout=60)
    plain.request("POST", "/v1/completions", b"x" * 3000, {"Content-Type": "application/json"})
    answer = plain.getresponse()
    check(answer.status == 400 and "this port speaks TLS: use https" in json.loads(answer.read())["error"]["message"], "plain HTTP")
    plain.close()
    with socket.create_connection(("127.0.0.1", cluster.http_port), timeout=60) as noise:
        noise.sendall(b"\x00\xff" * 500)
        try:
            while noise.recv(4096):
                pass
        except ConnectionResetError:
            pass
    check(cluster.request("GET", "/health")[0] == 200, "others are served meanwhile")
    for s in (silent, half):  # a handshake that does not go on is ended
        s.settimeout(60 * SLOW)
        try:
            while s.recv(4096):
                pass
        except ConnectionResetError:
            pass
        s.close()


def slow_readers(cluster):
    """A client that reads nothing of a long stream is cut; another one goes on."""
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.connect(("127.0.0.1", cluster.http_port))
    with cluster.context().wrap_socket(small, server_hostname="localhost") as slow:
        text = json.dumps(body(cluster, max_tokens=1900, stream=True, logprobs=20))
        slow.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
        cluster.until("it runs", lambda: metric(cluster, "penstock_requests", state="running") > 0)
        check(cluster.json("POST", "/v1/completions", body(cluster))["usage"]["completion_tokens"] == 20, "another one is served")
        cluster.until("it was cut", lambda: metric(cluster, "penstock_requests_total", outcome="abort") > 0)


def clients_that_leave(cluster):
    """With TLS's goodbye, without it, and with half a close: the request ends."""
    text = json.dumps(body(cluster, max_tokens=1900, stream=True))
    for leave in (lambda s: s.unwrap(), lambda s: s.close(), lambda s: s.shutdown(socket.SHUT_WR)):
        before = metric(cluster, "penstock_requests_total", outcome="abort")
        with cluster.socket(cluster.context()) as s:
            s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
            s.recv(100)
            try:
                leave(s)
            except (ssl.SSLError, OSError):
                pass  # data came instead of the server's goodbye
            cluster.until("it was ended", lambda: metric(cluster, "penstock_requests_total", outcome="abort") == before + 1)


def renewed(cluster, folder):
    """SIGHUP: open connections and a running stream go on with the old certificate, new ones get the new; a bad file changes nothing."""
    kept = cluster.open()
    kept.request("GET", "/health")
    kept.getresponse().read()
    events = []
    stream = cluster.open()
    stream.request("POST", "/v1/completions", json.dumps(body(cluster, max_tokens=100, stream=True)), {"Content-Type": "application/json"})
    response = stream.getresponse()
    reader = threading.Thread(target=lambda: events.extend(line for line in response if line.startswith(b"data: ")))
    reader.start()
    for end in ("pem", "key"):
        shutil.copy(f"{folder}/second.{end}", f"{folder}/used.{end}")
    cluster.router.kill(signal.SIGHUP)
    cluster.until("the router has read it", lambda: "reload done" in cluster.router.text())
    check(cluster.request("GET", "/health")[0] == 0, "the old certificate is not shown any more")
    cluster.trusted = f"{folder}/second.pem"
    check(cluster.request("GET", "/health")[0] == 200, "the new one is")
    kept.request("GET", "/health")
    check(kept.getresponse().status == 200, "an open connection goes on")
    reader.join()
    check(events[-1].strip() == b"data: [DONE]", f"the stream was not cut: {events[-1:]}")
    with open(f"{folder}/used.key", "w") as f:
        f.write("nothing\n")
    cluster.router.kill(signal.SIGHUP)
    cluster.until("the router says why", lambda: "http.certificate_key: the key in " in cluster.router.text())
    check(cluster.request("GET", "/health")[0] == 200, "the last good one stays")


def what_does_not_fit_is_refused_at_the_start(folder, model):
    for settings, words in (([f"http.certificate={folder}/none.pem"], "none.pem holds no certificate that can be used: No such file"),
                            ([f"http.certificate={folder}/first.key"], "first.key holds no certificate that can be used"),
                            ([f"http.certificate={folder}/first.pem"], "the key in " + f"{folder}/first.pem cannot be used"),
                            ([f"http.certificate={folder}/first.pem", f"http.certificate_key={folder}/second.key"],
                             f"http.certificate_key: the key in {folder}/second.key belongs to another certificate"),
                            ([f"http.certificate={folder}/first.pem", f"http.certificate_key={folder}/locked.key"], "locked.key cannot be used"),
                            ([f"http.certificate_key={folder}/first.key"], "http.certificate is empty"),
                            (["http.tls_minimum=1.1"], "http.tls_minimum")):
        command = [os.path.join(BUILD, "bin", "penstock-router"), "--set", f"router.model={model}", "--set", "http.listen=127.0.0.1:0",
                   "--set", "control.listen=tcp://127.0.0.1:0"] + Cluster.flags(settings)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        check(done.returncode == 2 and words in done.stderr, f"{settings}: {done}")


def test():
    if not shutil.which("openssl"):
        skip("no openssl command")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first", "second"):
            certificate(folder, name)
        subprocess.run(["openssl", "ec", "-aes128", "-passout", "pass:secret", "-in", f"{folder}/first.key", "-out", f"{folder}/locked.key"],
                       check=True, capture_output=True)
        for end in ("pem", "key"):
            shutil.copy(f"{folder}/first.{end}", f"{folder}/used.{end}")
        with TlsCluster(folder, "first", router=[f"http.certificate={folder}/used.pem", f"http.certificate_key={folder}/used.key",
                                                 "http.handshake_deadline=60s"]) as cluster:
            cluster.fake("decode", step_ms=5)
            clients_are_served(cluster)
            versions_and_protocols(cluster)
            slow_readers(cluster)
            clients_that_leave(cluster)
            renewed(cluster, folder)
            model = cluster.model
        with TlsCluster(folder, "first", router=[f"http.certificate={folder}/first.pem", f"http.certificate_key={folder}/first.key",
                                                 "http.handshake_deadline=2s"]) as cluster:
            strangers(cluster)
        what_does_not_fit_is_refused_at_the_start(folder, model)


if __name__ == "__main__":
    main(test)
