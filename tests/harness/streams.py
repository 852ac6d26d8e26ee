"""Streamed answers in tests: their text, the pauses in them, and what the router counted."""
import re
import threading
import time
import urllib.request

from cluster import SLOW, check

# For tests in which nobody falls silent on purpose: a machine that is busy with something else is no death.
PATIENT = dict(router=["control.suspect_after=20s", "control.dead_after=60s"], engine=["fabric.suspect=20s", "fabric.fail=60s"])
# For decode workers in tests that act at a certain token: one comes with each step.
PACE = ["speculate.drafter=off"]


def text_of(events):
    check(events and events[-1] == "[DONE]", f"the stream has no end: {events[-2:]}")
    check(not [e for e in events[:-1] if "error" in e], f"an error event: {events[-2:]}")
    return "".join(e["choices"][0]["text"] for e in events[:-1] if e["choices"])


def metric(cluster, name, worker=None, **labels):
    """The sum of a metric's series that have these labels, of the router or of a worker."""
    total = 0.0
    if worker is None:
        text = cluster.request("GET", "/metrics")[2]
    else:
        page = cluster.until("its page", lambda: re.search(r"health and metrics at (http://\S+)", worker.text()))
        with urllib.request.urlopen(page.group(1) + "/metrics", timeout=20 * SLOW) as response:
            text = response.read()
    for line in text.decode().splitlines():
        if re.match(re.escape(name) + r"[ {]", line) and all(f'{k}="{v}"' in line for k, v in labels.items()):
            total += float(line.rsplit(" ", 1)[1])
    return total


class Watch:
    """Events of some streams: how many came, and the longest time between two of one stream."""
    def __init__(self):
        self.lock = threading.Lock()
        self.count = 0
        self.longest = 0.0
        self.enough = threading.Event()
        self.wanted = 1 << 30

    def stream(self, cluster, request):
        last = [0.0]
        return text_of(cluster.stream("/v1/completions", request, on_event=lambda _: self.note(last)))

    def note(self, last):
        """One more event of the stream whose last one came at last[0] (0: none yet)."""
        now = time.monotonic()
        with self.lock:
            self.count += 1
            if last[0]:
                self.longest = max(self.longest, now - last[0])
            if self.count >= self.wanted:
                self.enough.set()
        last[0] = now

    def wait(self, count):
        self.wanted = count
        check(self.enough.wait(60 * SLOW), f"{self.count} of {count} events came")
