#!/usr/bin/env python3
# tags: integration bench
# limit: 60
"""penstock-bench engine on the tiny model prints one JSON object for each case, whose figures belong together; and it
refuses what it cannot do with a sentence."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, SLOW, check, main  # noqa: E402

BENCH = os.path.join(BUILD, "bin", "penstock-bench")


def bench(*arguments):
    return subprocess.run([BENCH, "engine", *arguments], capture_output=True, text=True, timeout=50 * SLOW)


def test():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), model], check=True)
        done = bench("--model", model, "--threads", "1", "--prompt", "128", "--generate", "8", "--batch", "1,3",
                     "--depth", "0,64", "--repeats", "1", "--no-limits", "--json")
        check(done.returncode == 0, done.stderr)
        load, *lines = [json.loads(line) for line in done.stdout.splitlines()]
        check(load["what"] == "load" and load["seconds"] > 0, f"{load}")
        check(load["file_bytes"] == os.path.getsize(model) and load["peak_bytes"] > load["file_bytes"], f"{load}")
        found = [(line["what"], line["tokens"], line["batch"], line["depth"]) for line in lines]
        check(found == [("prefill", 128, 1, 0), ("prefill", 128, 1, 64), ("decode", 8, 1, 0), ("decode", 24, 3, 0),
                        ("decode", 8, 1, 64), ("decode", 24, 3, 64)], f"{found}")
        for line in lines:
            check(min(line["tokens_per_s"], line["gb_per_s"], line["gop_per_s"]) > 0, f"{line}")
        # Work for a token: equal whatever the batch, and a prefill has one row of logits only.
        per_token = [line["gop_per_s"] / line["tokens_per_s"] for line in lines]
        check(all(abs(x / per_token[2] - 1) < 0.02 for x in per_token[2:]), f"{per_token}")
        check(per_token[0] < per_token[2], f"{per_token}")
        done = bench("--model", model, "--depth", "100000")
        check(done.returncode == 1 and "context" in done.stderr, done.stderr)
        done = bench("--model", "/nowhere.gguf")
        check(done.returncode == 1 and "/nowhere.gguf" in done.stderr, done.stderr)
        check(bench("--model", model, "--batch", "0").returncode == 2, "a batch of 0 was taken")


main(test)
