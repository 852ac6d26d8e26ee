"""The operators' program, for tests."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, SLOW, check  # noqa: E402

PROGRAM = os.path.join(BUILD, "bin", "penstock")


def penstock(cluster, *arguments, expect=0):
    command = [PROGRAM, "--router", f"http://{cluster.router_host}:{cluster.http_port}"] + list(arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 * SLOW)
    check(done.returncode == expect, f"penstock {arguments}: exit {done.returncode}: {done.stdout}{done.stderr}")
    check(expect == 0 or (done.stderr.count("\n") == 1 and done.stderr.startswith("penstock: ")), f"one sentence: {done.stderr!r}")
    return done.stdout + done.stderr
