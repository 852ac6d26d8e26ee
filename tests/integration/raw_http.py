"""Requests to a router byte by byte, for tests of what surrounds a body."""
import json
import socket
import time


def body(cluster, route, **more):
    asked = {"model": cluster.model_name(), "max_tokens": 2}
    asked.update({"prompt": "abc"} if route == "completions" else {"messages": [{"role": "user", "content": "abc"}]})
    asked.update(more)
    return asked


def talk(cluster, pieces, half=False, pause=0.0, seconds=10):
    """Send bytes as they are, and read until the router closes, or a whole answer is there."""
    got = b""
    with socket.create_connection((cluster.router_host, cluster.http_port), timeout=seconds) as s:
        try:
            for piece in pieces:
                s.sendall(piece)
                time.sleep(pause)
            if half:
                s.shutdown(socket.SHUT_WR)
            while True:
                data = s.recv(65536)
                if not data:
                    break
                got += data
        except OSError:
            pass
    return got


def request_bytes(cluster, fields=b"", data=None, route=b"/v1/completions", close=True):
    """A request as bytes; `fields` are further header lines."""
    data = json.dumps(body(cluster, "completions")).encode() if data is None else data
    end = b"Connection: close\r\n" if close else b""
    return (b"POST " + route + b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + end + fields +
            (b"" if b"Transfer-Encoding" in fields else b"Content-Length: %d\r\n" % len(data)) + b"\r\n" + data)
