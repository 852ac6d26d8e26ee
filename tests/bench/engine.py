"""The targets of the engine, each a ratio within one run; see engine.sh."""
import os
import sys

from rows import ROOT, Table, engine_run, model, note, program_lines

QUICK = ["--generate", "16", "--repeats", "1"] if "--quick" in sys.argv[1:] else []
THREADS = ["--threads", "2"]


def measure(name, *arguments, attempts=3):
    note("measuring", name, *arguments)
    return engine_run(model(name), *THREADS, *arguments, *QUICK, attempts=attempts)


def machine(table, run):
    low, high = min(run.dram), max(run.dram)
    state = "lower" if high < 45 else "upper"
    table.row("machine, 2 threads", f"{low:.1f} .. {high:.1f} GB/s DRAM read",
              f"{max(run.int8):.0f} GOP/s int8; the {state} state of memory")


def dram_row(table, work, run, depth, share):
    case, limit = run.case("decode", 1, depth), sum(run.dram) / len(run.dram)
    table.row(work, f"{case['tokens_per_s']:.0f} tokens/s, {case['gb_per_s']:.1f} GB/s",
              f">= {share:.0%} of {limit:.1f} GB/s: {run.of_dram(1, depth):.0%}", run.of_dram(1, depth) >= share)


def int8_row(table, work, run):
    case, limit = run.case("prefill", 1, 0), sum(run.int8) / len(run.int8)
    table.row(work, f"{case['tokens_per_s']:.0f} tokens/s, {case['gop_per_s']:.0f} GOP/s",
              f">= 50% of {limit:.0f} GOP/s: {run.of_int8(0):.0%}", run.of_int8(0) >= 0.5)


def small_model(table):
    run = measure("smollm2-135m", "--batch", "1,8,32", "--depth", "0,512")
    machine(table, run)
    dram_row(table, "SmolLM2-135M decode, 1 sequence", run, 0, 0.80)
    int8_row(table, "SmolLM2-135M prefill, 512 tokens", run)
    rate = {batch: run.case("decode", batch, 512)["tokens_per_s"] for batch in (1, 8, 32)}
    bytes_limit = 32 * sum(run.dram) / len(run.dram) / run.case("decode", 32, 512)["gb_per_s"] * rate[32] / 32
    table.row("decode, 32 sequences at 512 context", f"{rate[32]:.0f} tokens/s of {bytes_limit:.0f} by bytes",
              ">= 1000 tokens/s", rate[32] >= 1000)
    table.row("the same against 1 sequence", f"{rate[32] / rate[1]:.2f}x of {rate[1]:.0f} tokens/s", ">= 4x",
              rate[32] >= 4 * rate[1])
    table.row("decode, 8 sequences at 512 context", f"{rate[8] / rate[1]:.2f}x, {rate[8]:.0f} tokens/s", ">= 3x",
              rate[8] >= 3 * rate[1])
    deep = measure("smollm2-135m", "--batch", "1", "--depth", "4096", "--prompt", "64")
    dram_row(table, "decode, 1 sequence at 4,096 context", deep, 4096, 0.70)


def cache_types(table):
    runs = {kind: [] for kind in ("bf16", "int8")}
    for _ in range(1 if QUICK else 2):
        for kind, done in runs.items():
            done.append(measure("smollm2-135m", "--batch", "32", "--depth", "2048", "--prompt", "64", "--generate",
                                "32", "--repeats", "1", "--kv-type", kind, attempts=1))
    rate = {kind: max(run.case("decode", 32, 2048)["tokens_per_s"] for run in done) for kind, done in runs.items()}
    table.row("INT8 KV against BF16 KV, 32 at 2,048 context",
              f"{rate['int8'] / rate['bf16']:.2f}x, {rate['int8']:.0f} against {rate['bf16']:.0f} tokens/s", ">= 1.4x",
              rate["int8"] >= 1.4 * rate["bf16"])
    perplexity(table)


def text():
    """The longest text at hand: windows of a short one say little about a cache."""
    golden = os.path.join(ROOT, "..", "shared", "golden", "perplexity", "text.txt")
    return golden if os.path.exists(golden) else os.path.join(ROOT, "tests", "eval", "sets", "prose_and_code.txt")


def perplexity(table):
    note("measuring the perplexity of KV types")
    found = {}
    for line in program_lines("penstock-eval", "perplexity", "--model", model(), "--kv-type", "bf16,int8,fp8,f16",
                              "--text", text(), "--json", *THREADS, *(["--windows", "2"] if QUICK else [])):
        found[line["kv_type"]] = line["perplexity"]
    for kind in ("int8", "fp8", "bf16"):
        against = "f16" if kind == "bf16" else "bf16"
        change = found[kind] / found[against] - 1
        table.row(f"perplexity with {kind.upper()} KV against {against.upper()}",
                  f"{found[kind]:.4f} against {found[against]:.4f}: {change:+.2%}",
                  "within 0.5%" if kind == "int8" else "", abs(change) <= 0.005 if kind == "int8" else None)


def larger_models(table):
    run = measure("qwen2.5-coder-0.5b")
    machine(table, run)
    dram_row(table, "Qwen2.5-Coder-0.5B decode, 1 sequence", run, 0, 0.85)
    int8_row(table, "Qwen2.5-Coder-0.5B prefill, 512 tokens", run)
    table.row("load of its file, warm page cache", f"{run.load['seconds']:.2f} s", "<= 1.5 s",
              run.load["seconds"] <= 1.5)
    share = run.load["peak_bytes"] / run.load["file_bytes"]
    table.row("peak memory of loading it, beside the file", f"{share:.2f}x, {run.load['peak_bytes'] / 1e6:.0f} MB",
              "<= 1.10x (the pool comes on top)", share <= 1.1)
    run = measure("gemma3-270m")
    table.row("Gemma-3-270M decode, 1 sequence", f"{run.case('decode', 1, 0)['tokens_per_s']:.0f} tokens/s",
              f"{run.of_dram(1, 0):.0%} of DRAM read")
    table.row("Gemma-3-270M prefill, 512 tokens", f"{run.case('prefill', 1, 0)['tokens_per_s']:.0f} tokens/s",
              f"{run.of_int8(0):.0%} of int8 peak")


def main():
    table = Table("work", "measured", "target")
    small_model(table)
    larger_models(table)
    cache_types(table)
    table.end()


main()
