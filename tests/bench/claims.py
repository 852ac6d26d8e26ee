"""The claims of the README, measured; see claims.sh."""
import os
import statistics
import subprocess
import sys

from rows import ROOT, Table, engine_run, model, note, program_lines

QUICK = "--quick" in sys.argv[1:]
THREADS = ["--threads", "2"]
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "penstock", "bench")


def batching(table, path):
    note("continuous and static batching")
    load = ["--requests", "32", "--longest", "400"] if QUICK else ["--requests", "64"]
    lines = program_lines("penstock-bench", "batching", "--model", path, "--json", *THREADS, *load)
    rate = {line["batching"]: line["tokens_per_s"] for line in lines}
    table.row(f"continuous against static batching, answers of 20 to {load[-1] if QUICK else 2000} tokens",
              f"{rate['continuous'] / rate['static']:.2f}x ({rate['continuous']:.0f} against {rate['static']:.0f} tokens/s)",
              "> 1x", rate["continuous"] > rate["static"])


def requantised(path, kind):
    """A file of the same model with all matrices of one type, made once."""
    os.makedirs(CACHE, exist_ok=True)
    target = os.path.join(CACHE, os.path.basename(path).rsplit(".", 2)[0] + f".{kind}.gguf")
    if not os.path.exists(target) or os.path.getmtime(target) < os.path.getmtime(path):
        note("making", target)
        subprocess.run([sys.executable, os.path.join(ROOT, "tests", "bench", "requantise.py"), path, target, kind],
                       check=True)
    return target


def weight_types(table, path):
    rates, sizes = {"Q4_0": [], "Q8_0": []}, {}
    for _ in range(1 if QUICK else 3):
        for kind in rates:
            note("decoding", kind)
            run = engine_run(requantised(path, kind), *THREADS, "--prompt", "64", attempts=1 if QUICK else 3)
            rates[kind].append(run.case("decode", 1, 0)["tokens_per_s"])
            sizes[kind] = run.load["weight_bytes"]
    by_rate = statistics.median(rates["Q4_0"]) / statistics.median(rates["Q8_0"])
    by_bytes = sizes["Q8_0"] / sizes["Q4_0"]
    table.row("decode rate of Q4_0 against Q8_0 weights", f"{by_rate:.2f}x; bytes {by_bytes:.2f}x",
              f"within 10%: {by_rate / by_bytes:.2f}", abs(by_rate / by_bytes - 1) <= 0.1)


def resident(table, path):
    """Whole sequences of 512 tokens in 512 MiB of pages."""
    held = {}
    for kind in ("bf16", "int8", "fp8"):
        run = program_lines("penstock-bench", "engine", "--model", path, "--json", "--no-limits", *THREADS, "--prompt",
                            "1", "--generate", "1", "--repeats", "1", "--kv-type", kind)
        held[kind] = (512 << 20) // int(512 * run[0]["kv_token_bytes"])
    for kind in ("int8", "fp8"):
        table.row(f"sequences resident with {kind.upper()} KV against BF16",
                  f"{held[kind] / held['bf16']:.2f}x ({held[kind]} against {held['bf16']})", ">= 1.9x",
                  held[kind] >= 1.9 * held["bf16"])


def chunks(table, path):
    note("the sweep of chunk sizes")
    load = ["--prompt", "1000", "--chunks", "32,128,512"] if QUICK else []
    for line in program_lines("penstock-bench", "chunks", "--model", path, "--json", *THREADS, *load):
        table.row(f"8 answers beside a prompt in chunks of {line['chunk']}",
                  f"prefill {line['prefill_tokens_per_s']:.0f} tokens/s",
                  f"gap {line['gap_largest_s'] * 1e3:.1f} ms, alone {line['gap_alone_s'] * 1e3:.1f} ms")


def main():
    table, path = Table("claim", "measured", "should be"), model()
    batching(table, path)
    weight_types(table, path)
    resident(table, path)
    chunks(table, path)
    table.end()


main()
