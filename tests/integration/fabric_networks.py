#!/usr/bin/env python3
# tags: integration plain
# limit: 120
"""The fabric between two network namespaces: over IPv6, with a killed worker, and with the cable pulled out of running transfers."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, check, main, skip  # noqa: E402

TAG = f"psf{os.getpid() % 100000}"
HERE, THERE = TAG + "a", TAG + "b"
ADDRESSES = {HERE: ("10.213.78.1", "fd00:78::1"), THERE: ("10.213.78.2", "fd00:78::2")}


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        skip(f"network namespaces cannot be made here: ip {' '.join(arguments)}: {done.stderr.strip()}")


def build():
    if os.geteuid() != 0:
        skip("network namespaces need root")
    for side in ADDRESSES:
        ip("netns", "add", side)
        ip("-n", side, "link", "set", "lo", "up")
    ip("link", "add", HERE, "netns", HERE, "type", "veth", "peer", "name", THERE, "netns", THERE)
    for side, (four, six) in ADDRESSES.items():
        ip("-n", side, "addr", "add", four + "/24", "dev", side)
        ip("-n", side, "addr", "add", six + "/64", "dev", side, "nodad")
        ip("-n", side, "link", "set", side, "up")


def wait_until_up():
    """The kernel tells of a carrier with a delay, and UCX leaves out what is not up."""
    for side in ADDRESSES:
        for _ in range(100):
            if "state UP" in subprocess.run(["ip", "-n", side, "link", "show", side], capture_output=True, text=True).stdout:
                break
            time.sleep(0.05)
        else:
            skip(f"the link {side} does not come up")


def run(program, only=None, **environment):
    environment = {"PENSTOCK_TEST_" + key.upper(): value for key, value in environment.items()}
    if only:
        environment["PENSTOCK_TEST_ONLY"] = only
    done = subprocess.run(["ip", "netns", "exec", HERE, os.path.join(BUILD, "tests", program)],
                          env=dict(os.environ, PENSTOCK_CYCLES="3", **environment), capture_output=True, text=True)
    output = done.stdout + done.stderr
    check(done.returncode == 0, f"{program} {only or ''} fails between namespaces:\n{output}")
    check("1 test(s) run" in output or only is None, f"{program} has no test {only}:\n{output}")


def test():
    try:
        build()
        wait_until_up()
        for family in (0, 1):
            sides = dict(host=ADDRESSES[HERE][family], far=ADDRESSES[THERE][family], namespace=THERE)
            run("handoff-processes", "*a_killed_prefill*", **sides)
            run("handoff-processes", "*a_killed_decode*", **sides)
        sides = dict(host=ADDRESSES[HERE][0], far=ADDRESSES[THERE][0], namespace=THERE)
        for only in ("*a_stopped_prefill*", "*a_stopped_decode*"):
            run("handoff-processes", only, cut=f"ip link set {HERE} down", **sides)
            ip("-n", HERE, "link", "set", HERE, "up")
            wait_until_up()
        ip("-n", HERE, "addr", "replace", ADDRESSES[HERE][1] + "/64", "dev", HERE, "nodad")
        run("net-fabric", ipv6=ADDRESSES[HERE][1])
    finally:
        for side in ADDRESSES:
            subprocess.run(["ip", "netns", "del", side], capture_output=True)


main(test)
