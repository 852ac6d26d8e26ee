#!/usr/bin/env python3
# tags: integration bench
# limit: 60
"""penstock-bench tokenizer prints one JSON object for each model, and refuses what it cannot read with a sentence."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, SLOW, check, main  # noqa: E402


def bench(*arguments):
    return subprocess.run([os.path.join(BUILD, "bin", "penstock-bench"), "tokenizer", *arguments], capture_output=True, text=True,
                          timeout=50 * SLOW)


def test():
    with tempfile.TemporaryDirectory() as folder:
        model, text = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "text")
        subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), model], check=True)
        with open(text, "w", encoding="utf-8") as file:
            file.write("The keeper of the lighthouse wrote 12 letters. " * 50)
        done = bench("--model", model, "--model", model, "--text", text, "--repeats", "3", "--json")
        check(done.returncode == 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        check(len(lines) == 2 and all(line["bytes"] == 2350 and 0 < line["tokens"] < 2350 for line in lines), f"{lines}")
        for line in lines:
            check(min(line["first_mb_per_s"], line["again_mb_per_s"], line["decode_mb_per_s"]) > 0, f"{line}")
            check(line["first_best_mb_per_s"] >= line["first_mb_per_s"], f"{line}")
        done = bench("--model", "/nowhere.gguf", "--text", text)
        check(done.returncode == 1 and "/nowhere.gguf" in done.stderr, done.stderr)
        done = bench("--model", model, "--text", "/nowhere")
        check(done.returncode == 1 and "/nowhere" in done.stderr, done.stderr)
        check(bench("--model", model).returncode == 2, "no text was taken")


main(test)
