"""The targets of speculative decoding, each a ratio of runs with and without in turn; see speculate.sh."""
import os
import sys

from rows import ROOT, Table, model, note, program_lines

REPEATS = "1" if "--quick" in sys.argv[1:] else "3"
PROMPTS = os.path.join(ROOT, "tests", "bench", "speculate.jsonl")
LARGE, SMALL, SMOL = "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m"


def measure(target, *arguments, draft=None):
    """The lines of the runs with guesses (penstock-bench fails where a text differs)."""
    note("measuring", target, *arguments)
    draft = ["--draft", model(draft)] if draft else []
    lines = program_lines("penstock-bench", "speculate", "--model", model(target), *draft, "--prompts", PROMPTS,
                          "--threads", "2", "--repeats", REPEATS, "--json", *arguments)
    return lines


def gains(target, *arguments, draft=None):
    """Of these the ones of cases, without the choice of the best."""
    return [line for line in measure(target, *arguments, draft=draft) if line["what"] == "speculate"]


def row(table, work, line, least):
    """A gain is missed only where more than its error is missing, two standard errors."""
    found = (f"{line['ratio']:.3f}x +-{2 * line['error']:.3f}, {line['tokens_per_s']:.0f} tokens/s, alpha {line['alpha']:.2f}, "
             f"{line['tokens_per_step']:.2f} tokens a step")
    table.row(work, found, f">= {least:.2f}x", line["ratio"] + 2 * line["error"] >= least)


def pair(table):
    for kind, temperature, least in (("code", "0", 1.35), ("code", "0.8", 1.15), ("prose", "0", 0.98), ("prose", "0.8", 0.98)):
        line, = gains(LARGE, "--only", kind, "--temperature", temperature, "--drafters", "auto", draft=SMALL)
        row(table, f"1.5B with 0.5B draft, {kind}, temperature {temperature}", line, least)


def copy(table):
    for drafter in ("ngram", "suffix"):
        line, = gains(SMALL, "--only", "copy", "--drafters", drafter)
        if drafter == "ngram":
            row(table, "0.5B, copy with one rename, n-gram", line, 3)
        else:
            row(table, "the same, suffix (it has never seen the program)", line, 0.98)


def crowds(table):
    for name, draft in ((LARGE, SMALL), (SMALL, None), (SMOL, None)):
        for temperature in ("0", "0.8"):
            for line in gains(name, "--batch", "16,32", "--max-tokens", "96", "--temperature", temperature, draft=draft):
                row(table, f"{name}{' with draft' if draft else ''}, batch {line['batch']}, temperature {temperature}", line, 0.98)


def nothing_to_gain(table):
    """Hot sampling: neither the text's past nor a small model says what comes next."""
    for name, draft in ((SMALL, None), (LARGE, SMALL)):
        line, = gains(name, "--only", "prose", "--temperature", "1.6", draft=draft)
        row(table, f"{name}{' with draft' if draft else ''}: text with nothing to gain, temperature 1.6", line, 0.98)


def choice(table):
    """The controller's number of guesses beside the best of fixed ones, each measured."""
    for target, draft, drafter, kind in ((LARGE, SMALL, "model", "code"), (LARGE, SMALL, "model", "prose"), (SMALL, None, "ngram", "copy")):
        lines = measure(target, "--only", kind, "--drafters", drafter, "--fixed", "1,2,3,4,6,8", "--max-tokens", "128", draft=draft)
        best = lines[-1]
        table.row(f"guesses a step, {kind}, {drafter}", f"{best['controller_g']:.2f} ({best['controller_ratio']:.2f}x)",
                  f"within 1 of {best['g']:.2f} ({best['ratio']:.2f}x), or as good", best["within_one"])


def main():
    table = Table("work", "measured", "target")
    pair(table)
    copy(table)
    nothing_to_gain(table)
    crowds(table)
    choice(table)
    table.end()


main()
