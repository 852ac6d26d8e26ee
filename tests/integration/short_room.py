"""What the tests of admission share: requests of a size, and a steady load of them."""
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import check, together  # noqa: E402

WORD = "net "


def body(cluster, words=100, tokens=20, **more):
    return dict({"model": cluster.model_name(), "prompt": WORD * words, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}, **more)


def timed(cluster, **more):
    began = time.monotonic()
    code, headers, data = cluster.request("POST", "/v1/completions", body(cluster, **more))
    return code, time.monotonic() - began, headers, json.loads(data)


class Stream(threading.Thread):
    """Requests of one kind, one after another on `lanes` lanes, until it is stopped; how many were answered."""

    def __init__(self, cluster, lanes, **more):
        super().__init__()
        self.cluster, self.lanes, self.more = cluster, lanes, more
        self.done = threading.Event()
        self.codes = []

    def lane(self):
        while not self.done.is_set():
            self.codes.append(timed(self.cluster, **self.more)[0])

    def run(self):
        together([self.lane] * self.lanes)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.join()
        check(set(self.codes) == {200}, f"{set(self.codes)}")
