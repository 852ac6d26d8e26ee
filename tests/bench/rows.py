"""What the scripts of tests/bench share: models, runs of penstock-bench, and a table of figures and targets."""
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.join(ROOT, "build", "bin")


def model(name="smollm2-135m"):
    """The path of a model, fetched where it is missing."""
    return subprocess.run([os.path.join(ROOT, "deploy", "model", "fetch.sh"), name], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.strip()


def program_lines(program, *arguments):
    """The JSON objects that a program prints, one a line."""
    done = subprocess.run([os.path.join(BIN, program), *map(str, arguments)], check=True, stdout=subprocess.PIPE,
                          text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


class EngineRun:
    """One run of `penstock-bench engine`, with the machine's limits before and after."""

    def __init__(self, path, *arguments):
        self.lines = program_lines("penstock-bench", "engine", "--model", path, "--json", *arguments)
        self.load = next(line for line in self.lines if line["what"] == "load")
        self.dram = self._limits("dram read", "gb_per_s")
        self.int8 = self._limits("int8 multiply-add", "gop_per_s")

    def _limits(self, name, unit):
        return [line[unit] for line in self.lines if line["what"] == "limit" and line["name"] == name]

    def drift(self):
        """How far the memory's speed before and after are apart; figures of a run that drifted mean little."""
        return max(self.dram) / min(self.dram) - 1

    def case(self, what, batch, depth):
        return next(line for line in self.lines
                    if line["what"] == what and line["batch"] == batch and line["depth"] == depth)

    def of_dram(self, batch, depth):
        return self.case("decode", batch, depth)["gb_per_s"] / (sum(self.dram) / len(self.dram))

    def of_int8(self, depth):
        return self.case("prefill", 1, depth)["gop_per_s"] / (sum(self.int8) / len(self.int8))


def engine_run(path, *arguments, attempts=3):
    """A run whose limits agree; the steadiest of `attempts` where none does."""
    runs = []
    for _ in range(attempts):
        runs.append(EngineRun(path, *arguments))
        if runs[-1].drift() < 0.1:
            break
    return min(runs, key=EngineRun.drift)


class Table:
    """Rows of work, figure, limit and target, printed as they come."""
    WIDTHS = (56, 42, 42)

    def __init__(self, *heads):
        self.missed = []
        self._line(*heads, "")
        print("-" * (sum(self.WIDTHS) + 10))

    def _line(self, work, figure, target, verdict):
        cells = [text.ljust(width) for text, width in zip((work, figure, target), self.WIDTHS)]
        print("  ".join(cells) + verdict, flush=True)

    def row(self, work, figure, target="", met=None):
        """`met` None: a figure without a target."""
        if met is False:
            self.missed.append(work)
        self._line(work, figure, target, "" if met is None else "met" if met else "MISSED")

    def end(self):
        print(f"\nmissed: {', '.join(self.missed)}" if self.missed else "\nevery target is met")


def note(*words):
    """Progress, apart from the table."""
    print(*words, file=sys.stderr, flush=True)
