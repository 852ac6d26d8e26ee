#!/usr/bin/env python3
# tags: integration eval
# limit: 60
"""penstock-eval: a model compared with itself has no distance at all, alongside or through a stored run; the golden text has
the golden likelihood; the default model answers easy questions; bad input gets one sentence. Without the default model only a
tiny one is measured."""
import csv
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import BUILD, MODEL, SLOW, SOURCE, check, main  # noqa: E402

EVAL = os.path.join(BUILD, "bin", "penstock-eval")
SETS = os.path.join(SOURCE, "tests", "eval", "sets")
TEXT = os.path.join(SETS, "prose_and_code.txt")
QUESTIONS = os.path.join(SETS, "easy.jsonl")
GOLDEN = os.path.join(os.environ.get("PENSTOCK_SHARED") or os.path.join(SOURCE, "..", "shared"), "golden", "perplexity")


def run(*arguments):
    return subprocess.run([EVAL, *arguments], capture_output=True, text=True, timeout=50 * SLOW)


def lines(*arguments):
    done = run(*arguments, "--json")
    check(done.returncode == 0 and done.stderr == "", f"{arguments}: {done.returncode} {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(sentence, *arguments, status=1):
    done = run(*arguments)
    check(done.returncode == status and done.stdout == "", f"{arguments}: {done.returncode} {done.stdout}")
    check(sentence in done.stderr and done.stderr.count("\n") == 1, f"'{sentence}' is not in: {done.stderr}")


def check_same(line):
    check(line["kl_mean"] == 0 and line["kl_max"] == 0 and line["top_same"] == 1 and line["nll_difference"] == 0, f"{line}")


def identity(model, folder):
    """Whatever the KV type of the other, a model is equal to itself."""
    stored = os.path.join(folder, "run")
    few = ("--text", TEXT, "--context", "128", "--windows", "2")
    reference, same, other = lines("compare", "--reference", model, "--model", model, "--model", model + ",kv=f32",
                                   "--save-reference", stored, *few)
    check_same(same)
    check(other["kl_mean"] > 0 and other["kl_max"] >= other["kl_p99"] > 0, f"{other}")
    check(reference["nll"] == same["nll"] and same["scored"] == reference["scored"] > 0, f"{reference} {same}")
    again, same, later = lines("compare", "--reference-file", stored, "--model", model, "--model", model + ",kv=f32")
    check_same(same)
    check(later == other and again == reference, f"{later} is not {other}, or {again} not {reference}")
    kept = lines("compare", "--reference", model, "--save-reference", stored, *few)
    check(len(kept) == 1 and abs(kept[0]["nll"] - reference["nll"]) < 1e-7, f"{kept} is not {reference}")
    alone = lines("perplexity", "--model", model, *few)[0]
    check(abs(alone["nll"] - reference["nll"]) < 1e-9, f"{alone} {reference}")
    # Every type of a list is measured, by each command that takes one.
    both = lines("perplexity", "--model", model, "--kv-type", "f16,f32", *few)
    check([line["kv_type"] for line in both] == ["f16", "f32"] and both[0]["nll"] == alone["nll"], f"{both}")
    both = lines("compare", "--reference", model, "--model", model, "--kv-type", "f16,f32", *few)[1:]
    check([line["kv_type"] for line in both] == ["f16", "f32"] and both[1] == other, f"{both} without {other}")
    overlapped = lines("perplexity", "--model", model, *few, "--stride", "64")[0]
    check(overlapped["windows"] == 2 and overlapped["scored"] < alone["scored"], f"{overlapped}")


def table(model, folder, *more):
    svg, table_csv = os.path.join(folder, "plot.svg"), os.path.join(folder, "table.csv")
    done = run("table", "--model", model, "--kv-type", "f16,f32", "--text", TEXT, "--set", QUESTIONS, "--context", "64",
               "--windows", "2", "--svg", svg, "--csv", table_csv, *more)
    check(done.returncode == 0 and done.stderr == "", done.stderr)
    with open(table_csv, newline="", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    check((first["kv_type"], second["kv_type"]) == ("f16", "f32"), f"{first} {second}")
    check(float(second["kv_bytes_per_token"]) == 2 * float(first["kv_bytes_per_token"]), f"{first} {second}")
    check(abs(int(first["resident_sequences"]) - 2 * int(second["resident_sequences"])) <= 1, f"{first} {second}")
    check(float(first["kl_mean"]) == 0 and float(second["kl_mean"]) > 0, f"{first} {second}")
    ratio = 100 * (float(second["perplexity"]) / float(first["perplexity"]) - 1)
    check(abs(float(second["perplexity_difference_percent"]) - ratio) < 1e-4, f"{first} {second}")
    check(done.stdout.count(first["model"]) == 2 and first["kv_type"] in done.stdout, done.stdout)
    drawn = xml.etree.ElementTree.parse(svg).getroot()
    panels = 1 if "--no-speed" in more else 2
    marks = [e for e in drawn.iter() if "mark" in e.get("class", "")]
    check(len(marks) == 2 * panels + 3, f"{len(marks)} marks")  # and in the legend one model, two types
    return first


def order_of_choices(model, folder):
    """An answer does not depend on where it stands: nothing of one choice is left while the next is scored."""
    turned = os.path.join(folder, "turned.jsonl")
    with open(QUESTIONS, encoding="utf-8") as file, open(turned, "w", encoding="utf-8") as other:
        for line in file:
            question = json.loads(line)
            other.write(json.dumps(dict(question, choices=question["choices"][::-1], answer=3 - question["answer"])) + "\n")
    first, second = lines("choices", "--model", model, "--set", QUESTIONS), lines("choices", "--model", model, "--set", turned)
    check(len(first) == len(second) == 45, f"{len(first)} lines")
    for a, b in zip(first[:-1], second[:-1]):
        check(a["chosen"] == 3 - b["chosen"] and a["chosen_by_bytes"] == 3 - b["chosen_by_bytes"], f"{a} {b}")
    check(first[-1] == second[-1], f"{first[-1]} {second[-1]}")


def refusals(model, folder):
    other = os.path.join(folder, "other.gguf")
    with open(model, "rb") as file, open(other, "wb") as copy:
        # A token's text is another one: <|im_end|> becomes <|in_end|>.
        copy.write(file.read().replace(b"<|im_end|>", b"<|in_end|>", 1))
    bad = os.path.join(folder, "bad.jsonl")
    with open(bad, "w", encoding="utf-8") as file:
        file.write('{"question":"a","choices":["b","c"],"answer":0}\n{"question":"a","choices":["b","c"],"answer":2}\n')
    refused("other.gguf has another tokenizer than the reference tiny.gguf", "compare", "--reference", model, "--model", other,
            "--text", TEXT)
    refused(f"{bad}:2: 'answer' must be a whole number from 0 to 1", "choices", "--model", model, "--set", bad)
    refused("is not UTF-8 at byte ", "perplexity", "--model", model, "--text", model)
    refused("no reference run: magic", "compare", "--reference-file", TEXT, "--model", model)
    refused("one of --reference and --reference-file", "compare", "--model", model, "--text", TEXT)
    refused("the KV type 'f64' is not known; it must be one of", "perplexity", "--model", model + ",kv=f64", "--text", TEXT)
    refused("/nowhere.gguf", "perplexity", "--model", "/nowhere.gguf", "--text", TEXT)
    refused("/nowhere.txt cannot be read", "perplexity", "--model", model, "--text", "/nowhere.txt")
    refused("--context is 100000; tiny.gguf was trained for 2048", "perplexity", "--model", model, "--text", TEXT, "--context",
            "100000")
    refused("needs --text", "perplexity", "--model", model, status=2)
    refused("--windows is 'x'; it must be a whole number from 1", "perplexity", "--model", model, "--text", TEXT, "--windows", "x",
            status=2)
    refused("takes no option --set", "perplexity", "--model", model, "--text", TEXT, "--set", QUESTIONS, status=2)


def golden():
    """By the rules of its README: 1,024 tokens in one context, within 0.01 nats of float64."""
    name = os.path.join(GOLDEN, "smollm2-135m.json")
    if not os.path.exists(name):
        print("skipped: the golden text is not here")
        return
    with open(name, encoding="utf-8") as file:
        truth = json.load(file)["nll_mean"]
    own = lines("perplexity", "--model", MODEL, "--text", os.path.join(GOLDEN, "text.txt"), "--context", "1024", "--windows", "1")[0]
    print(f"golden text: NLL {own['nll']:.6f}, float64 {truth:.6f}")
    check(own["scored"] == 1023 and abs(own["nll"] - truth) <= 0.01, f"{own} {truth}")


def easy_questions():
    score = lines("choices", "--model", MODEL, "--set", QUESTIONS)[-1]
    print(f"easy questions: {100 * score['accuracy']:.1f} %, by chance {100 * score['chance']:.1f} %")
    for kind in ("", "_by_bytes"):
        low, high = score["interval" + kind]
        check(score["chance"] < low <= score["accuracy" + kind] <= high <= 1, f"{score}")


def test():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        subprocess.run([os.path.join(BUILD, "tools", "tiny-model"), model], check=True)
        identity(model, folder)
        measured = table(model, folder, "--prompt", "32", "--generate", "4", "--depth", "8", "--repeats", "1")
        check(all(float(measured[name]) > 0 for name in measured if name.endswith("tokens_per_s")), f"{measured}")
        check(table(model, folder, "--no-speed")["prefill_tokens_per_s"] == "", "a speed was not measured and is there")
        order_of_choices(model, folder)
        refusals(model, folder)
        if SLOW == 1.0 and os.path.exists(MODEL) and "SmolLM2-135M" in MODEL:
            identity(MODEL, folder)
            golden()
            easy_questions()
        else:
            print("skipped: the default model is not here, or a sanitizer would take long with it")


main(test)
