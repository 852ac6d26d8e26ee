#!/usr/bin/env python3
# tags: integration
# limit: 240
"""Two network namespaces on one machine: router and prefill worker in one, decode worker in the other; the same answers as on loopback."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import Cluster, check, main, skip  # noqa: E402

TAG = f"pst{os.getpid() % 100000}"
NEAR, FAR = "10.213.77.1", "10.213.77.2"
BODY = dict(prompt="The harbour at night is " * 30, max_tokens=12, temperature=0.7, seed=3)


def ip(*arguments, quiet=False):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode and not quiet:
        skip(f"network namespaces cannot be made here: ip {' '.join(arguments)}: {done.stderr.strip()}")


def build():
    if os.geteuid() != 0:
        skip("network namespaces need root")
    for side in ("a", "b"):
        ip("netns", "add", TAG + side)
        ip("-n", TAG + side, "link", "set", "lo", "up")
    ip("link", "add", TAG + "a0", "netns", TAG + "a", "type", "veth", "peer", "name", TAG + "b0", "netns", TAG + "b")
    for side, address in (("a", NEAR), ("b", FAR)):
        ip("-n", TAG + side, "addr", "add", address + "/24", "dev", f"{TAG}{side}0")
        ip("-n", TAG + side, "link", "set", f"{TAG}{side}0", "up")
    for side in ("a", "b"):
        wait_for_carrier(side)


def wait_for_carrier(side):
    """A device without a carrier is no device to UCX, and a new pair takes a moment to have one."""
    for _ in range(200):
        shown = subprocess.run(["ip", "-n", TAG + side, "link", "show", f"{TAG}{side}0"], capture_output=True, text=True)
        if "LOWER_UP" in shown.stdout and "state UP" in shown.stdout:
            return
        time.sleep(0.05)
    check(False, f"{TAG}{side}0 did not come up: {shown.stdout}{shown.stderr}")


def answers():
    """Run in the near namespace: this script again, with the cluster's far end by a command prefix."""
    far = ["ip", "netns", "exec", TAG + "b"]
    with Cluster(1, 1, router=["policy.local_prefill_tokens=0"], hosts={"router": NEAR, "prefill": NEAR, "decode": FAR},
                 prefixes={"decode": far}) as cluster:
        first = cluster.complete(**BODY)
        again = cluster.complete(**BODY)
        state = cluster.state()["workers"]
        moved = sum(w.get("handoff_bytes", 0) for w in state)
        check(moved > 0, f"no page crossed between the namespaces: {state}")
        cluster.check_idle()
        return first["choices"][0]["text"], again["choices"][0]["text"]


def test():
    if len(sys.argv) > 1:
        globals()["TAG"] = sys.argv[1]
        expected = sys.argv[2]
        for text in answers():
            check(text == expected, f"{text!r} is not {expected!r}")
        return
    with Cluster(1, 1, router=["policy.local_prefill_tokens=0"]) as cluster:
        expected = cluster.complete(**BODY)["choices"][0]["text"]
    try:
        build()
        inner = subprocess.run(["ip", "netns", "exec", TAG + "a", sys.executable, os.path.abspath(__file__), TAG, expected],
                               capture_output=True, text=True)
        print(inner.stdout + inner.stderr)
        check(inner.returncode == 0, "the cluster across two namespaces failed")
    finally:
        for side in ("a", "b"):
            ip("netns", "del", TAG + side, quiet=True)


main(test)
