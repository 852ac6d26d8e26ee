#!/usr/bin/env python3
# tags: integration bench
# limit: 90
"""penstock-bench serve and interfere load a cluster and print JSON lines whose figures belong together."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, SLOW, Cluster, check, main  # noqa: E402


def bench(command, *arguments):
    done = subprocess.run([os.path.join(BUILD, "bin", "penstock-bench"), command, *arguments], capture_output=True,
                          text=True, timeout=60 * SLOW)
    return done, [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else []


def test():
    with Cluster(prefill=1, decode=1) as cluster:
        url = "http://127.0.0.1:%d" % cluster.http_port
        done, lines = bench("serve", "--base-url", url, "--streams", "2", "--requests", "5", "--prompt-tokens", "80",
                            "--max-tokens", "12", "--json")
        check(done.returncode == 0, done.stderr)
        rows = {line["what"]: line for line in lines}
        check(rows["serve"]["requests"] == 5 and rows["serve"]["tokens"] == 60, f"{rows}")
        check(0 < rows["ttft"]["p50"] <= rows["ttft"]["max"] and rows["gap"]["max"] > 0, f"{rows}")
        # Answers of one token have no gap: that row is left out.
        done, lines = bench("serve", "--base-url", url, "--streams", "1", "--requests", "1", "--max-tokens", "1",
                            "--json")
        check(done.returncode == 1 or [line["what"] for line in lines][-1] == "serve", done.stdout)
        done, lines = bench("interfere", "--base-url", url, "--decoders", "2", "--prompt-tokens", "20",
                            "--max-tokens", "2000", "--intruder-tokens", "300", "--intruder-out", "3", "--seconds",
                            "2", "--every", "1", "--warm", "0.5", "--wait", "30", "--json")
        check(done.returncode == 0, done.stderr)
        without, with_, prompts = lines
        check(without["what"] == "without" and with_["what"] == "with", f"{lines}")
        for line in (without, with_):
            check(line["tokens"] > 4 and line["errors"] == 0, f"{line}")
            check(0 < line["gap_p50_ms"] <= line["gap_max_ms"] and line["per_token_ms"] > 0, f"{line}")
        check(1 <= prompts["sent"] <= 2 and prompts["served"] == prompts["sent"] and prompts["lost"] == 0, f"{prompts}")
        check(0 < prompts["ttft_p50_s"] <= prompts["ttft_max_s"], f"{prompts}")
        done, _ = bench("interfere", "--base-url", url, "--seconds", "never")
        check(done.returncode == 2 and "--help" in done.stderr, done.stderr)


main(test)
