"""The targets of the whole server, in one placement of its workers; see server.sh."""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import time

from rows import BIN, ROOT, Table, model, note, program_lines

sys.path.insert(0, os.path.join(ROOT, "deploy", "local"))
import ask  # noqa: E402
import up  # noqa: E402

SHARED_CLIENT = os.path.join(os.path.dirname(ROOT), "shared", "examples", "load.py")
ROWS = ("start", "one", "interfere", "flood", "served", "eight", "crowd", "memory")
KV_SPACE = {"prefill": "240MiB", "decode": "475MiB"}  # 0.75 GB
# Eight answers of up to 4,000 tokens, beside the prompts that come, are more than that holds: these have a cluster of their own.
LONG_ROWS = ("interfere", "flood", "served")
LONG_SPACE = "decode:engine.kv_bytes=1200MiB"


def parse_arguments():
    parser = argparse.ArgumentParser(prog="server.sh")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--client", default=SHARED_CLIENT if os.path.exists(SHARED_CLIENT) else "none")
    parser.add_argument("--set", action="append", default=[], metavar="ROLE:KEY=VALUE")
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    for setting in arguments.set:
        if not re.match(r"(router|prefill|decode):[a-z_.]+=", setting):
            parser.error("--set %s: it must be ROLE:KEY=VALUE" % setting)
    unknown = set(arguments.only.split(",")) - set(ROWS)
    if unknown:
        parser.error("--only knows no row named %s" % ", ".join(sorted(unknown)))
    return arguments


class Server(up.Cluster):
    """The cluster of up.sh, with KV space and settings of our own."""

    def __init__(self, path, settings):
        super().__init__(argparse.Namespace(model=path, prefill=1, decode=1, port=up.free_port(),
                                            build_dir=os.path.join(ROOT, "build")))
        self.settings = [setting.split(":", 1) for setting in settings]

    def start(self, name, role, settings):
        pool = ["engine.kv_bytes=" + KV_SPACE[role]] if role in KV_SPACE else []
        super().start(name, role, settings + pool + [value for to, value in self.settings if to == role])

    def first_token(self):
        """Start everything; seconds until a request was answered with its first token."""
        begun = time.monotonic()
        self.start_all()
        while time.monotonic() - begun < 30:
            self.check_alive()
            try:
                if ask.get(self.arguments.port, "/ready")[0] == 200:
                    lines = program_lines("penstock-bench", "serve", "--base-url", self.url(), "--streams", 1,
                                          "--requests", 1, "--prompt-tokens", 16, "--max-tokens", 2, "--json")
                    if lines:
                        return time.monotonic() - begun
            except (OSError, subprocess.CalledProcessError):
                pass
            time.sleep(0.005)
        raise up.Trouble("no token came within 30 s; the logs are in %s" % self.folder)

    def url(self):
        return "http://%s:%d" % (up.HOST, self.arguments.port)

    def peak_bytes(self):
        total = 0
        for _, process in self.processes:
            with open("/proc/%d/status" % process.pid, encoding="ascii") as file:
                total += int(re.search(r"VmHWM:\s+(\d+) kB", file.read()).group(1)) << 10
        return total

    def placement(self):
        words = []
        for name, _ in self.processes[1:]:
            with open(self.log_path(name), encoding="utf-8", errors="replace") as log:
                found = re.search(r"cores (\S+) borrowed (\d+)", log.read())
            cores, borrowed = found.groups() if found else ("?", "0")
            words.append("%s on core %s%s" % (name, cores, ", borrows %s" % borrowed if borrowed != "0" else ""))
        return "; ".join(words + [":".join(setting) for setting in self.settings])


class OwnClient:
    """penstock-bench as the load."""
    name = "penstock-bench"

    def __init__(self, server):
        self.server = server

    def run(self, command, *arguments):
        words = [os.path.join(BIN, "penstock-bench"), command, "--base-url", self.server.url(), "--json", *arguments]
        done = subprocess.run([str(word) for word in words], check=False, stdout=subprocess.PIPE, text=True)
        if done.returncode not in (0, 1) or not done.stdout:  # 1: some requests failed, and the lines count them
            raise up.Trouble("penstock-bench %s ended with status %d" % (command, done.returncode))
        return [json.loads(line) for line in done.stdout.splitlines()]

    def conc(self, streams, requests):
        lines = {line["what"]: line for line in self.run("serve", "--streams", streams, "--requests", requests,
                                                         "--prompt-tokens", 256, "--max-tokens", 64)}
        return {"tokens_per_s": lines["serve"]["tokens_per_s"], "errors": lines["serve"]["errors"],
                "ttft_ms": lines["ttft"]["p50"], "per_token_ms": lines["time_per_output_token"]["p50"]}

    def interfere(self, seconds, every, wait=0):
        without, with_, prompts = self.run("interfere", "--seconds", seconds, "--every", every, "--wait", wait)
        return without, with_, prompts


class SharedClient(OwnClient):
    """A load generator with the arguments and output of load.py."""

    def __init__(self, server, path):
        super().__init__(server)
        self.path, self.name = path, os.path.basename(path)

    def load(self, case, *arguments):
        command = [sys.executable, self.path, case, "--base-url", self.server.url(), "--model",
                   ask.model_name(self.server.arguments.port), "--seed", random.randrange(1, 1 << 20), *arguments]
        done = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def conc(self, streams, requests):
        line = self.load("conc", "-c", streams, "-n", requests, "--prompt-tokens", 256, "--max-tokens", 64)[0]
        return {"tokens_per_s": line["out_tps"], "errors": line["err"], "ttft_ms": line["ttft_ms"][0],
                "per_token_ms": line["tpot_ms"][0]}

    def interfere(self, seconds, every, wait=0):
        if wait:
            return super().interfere(seconds, every, wait)
        lines = self.load("interfere", "--decoders", 8, "--prompt-tokens", 64, "--max-tokens", 4000,
                          "--intruder-tokens", 4000, "--intruder-out", 32, "--seconds", seconds, "--every", every)
        without, with_ = ({"tokens_per_s": line["out_tps"], "per_token_ms": line["tpot_mean_per_stream_ms"][0],
                           "gap_max_ms": line["gap_ms_p50_p90_p99_max"][3], "errors": line["err"]} for line in lines)
        ttft = lines[1]["intruder_ttft_ms"]
        return without, with_, {"ttft_p50_s": ttft[0] / 1e3 if ttft else float("inf")}


class Rows:
    def __init__(self, table, client, arguments):
        self.table, self.client, self.arguments = table, client, arguments

    def best(self, measure, key):
        """The run with the least `key` of as many as were asked for."""
        return min((measure() for _ in range(self.arguments.repeats)), key=key)

    def row(self, work, figure, target, met, errors=0):
        if errors:
            figure += ", %d errors" % errors
        self.table.row(work, figure, target, met and not errors)

    def one(self):
        got = self.best(lambda: self.client.conc(1, 9), lambda r: r["ttft_ms"])
        self.row("1 at a time, 256 in / 64 out: TTFT p50", "%.0f ms" % got["ttft_ms"], "<= 180 ms",
                 got["ttft_ms"] <= 180, got["errors"])
        self.row("the same: time per token p50", "%.2f ms" % got["per_token_ms"], "<= 5 ms", got["per_token_ms"] <= 5)

    def interfere(self):
        seconds = 15 if self.arguments.quick else 30
        without, with_, prompts = self.best(lambda: self.client.interfere(seconds, seconds),
                                            lambda r: r[1]["gap_max_ms"])
        ratio = with_["per_token_ms"] / without["per_token_ms"]
        self.row("8 streams, a 4,000-token prompt comes: largest gap", "%.0f ms" % with_["gap_max_ms"], "<= 100 ms",
                 with_["gap_max_ms"] <= 100, without["errors"] + with_["errors"])
        self.row("the same: time per token, with / without", "%.2fx (%.1f / %.1f ms)" % (
            ratio, with_["per_token_ms"], without["per_token_ms"]), "<= 1.15x", ratio <= 1.15)
        self.row("the same: TTFT of that prompt", "%.1f s" % prompts["ttft_p50_s"], "<= 8 s",
                 prompts["ttft_p50_s"] <= 8)

    def flood(self):
        seconds = 10 if self.arguments.quick else 20
        without, with_, _ = self.best(lambda: self.client.interfere(seconds, 2),
                                      lambda r: r[1]["per_token_ms"] / r[0]["per_token_ms"])
        ratio = with_["per_token_ms"] / without["per_token_ms"]
        self.row("8 streams, such a prompt every 2 s: per token", "%.2fx (%.1f / %.1f ms)" % (
            ratio, with_["per_token_ms"], without["per_token_ms"]), "<= 1.25x", ratio <= 1.25,
            without["errors"] + with_["errors"])
        self.row("the same: tokens/s of the 8 streams", "%.0f, largest gap %.0f ms" % (
            with_["tokens_per_s"], with_["gap_max_ms"]), ">= 350", with_["tokens_per_s"] >= 350)

    def served(self):
        if self.arguments.quick:
            return
        _, _, prompts = self.client.interfere(20, 2, wait=120)
        self.row("the same: prompts of the flood",
                 "%(served)d of %(sent)d, %(refused)d refused, TTFT %(ttft_p50_s).0f s" % prompts, "none lost or left",
                 prompts["sent"] == prompts["served"] + prompts["refused"])

    def many(self, streams, target):
        got = self.best(lambda: self.client.conc(streams, 3 * streams), lambda r: -r["tokens_per_s"])
        self.row("%d at a time, 256 in / 64 out" % streams, "%.0f tokens/s" % got["tokens_per_s"],
                 ">= %d tokens/s" % target, got["tokens_per_s"] >= target, got["errors"])

    def eight(self):
        self.many(8, 250)

    def crowd(self):
        self.many(32, 300)

    def memory(self):
        peak = self.client.server.peak_bytes()
        self.row("peak memory of all processes, 0.75 GB of KV", "%.2f GB" % (peak / 1e9), "<= 1.1 GB", peak <= 1.1e9)


def start_row(table, path, arguments):
    """Start as often as asked for, three times at least; the last one stays up."""
    times = []
    for left in reversed(range(max(3, arguments.repeats) if "start" in arguments.only else 1)):
        server = Server(path, arguments.set)
        try:
            times.append(server.first_token())
        except BaseException:
            server.stop()
            raise
        if left:
            server.stop()
    if "start" in arguments.only:
        table.row("start to first token over HTTP, best of %d" % len(times), "%.2f s (%s)" % (
            min(times), ", ".join("%.2f" % t for t in times)), "<= 1.5 s, warm file cache", min(times) <= 1.5)
    return server


def ask_rows(table, server, arguments, names):
    client = OwnClient(server) if arguments.client == "none" else SharedClient(server, arguments.client)
    rows = Rows(table, client, arguments)
    for name in names:
        note("measuring", name)
        getattr(rows, name)()


def main():
    arguments = parse_arguments()
    path = model()
    with open(path, "rb") as file:  # a warm file cache
        while file.read(1 << 24):
            pass
    table = Table("work", "measured", "target")
    server = start_row(table, path, arguments)
    try:
        ask_rows(table, server, arguments, [n for n in arguments.only.split(",") if n not in ("start",) + LONG_ROWS])
    finally:
        server.stop()
    longer = [n for n in arguments.only.split(",") if n in LONG_ROWS]
    if longer:
        server = Server(path, [LONG_SPACE] + arguments.set)
        try:
            server.first_token()
            ask_rows(table, server, arguments, longer)
        finally:
            server.stop()
    print("\nplacement: %s; client: %s" % (server.placement(), arguments.client))
    table.end()


if __name__ == "__main__":
    main()
