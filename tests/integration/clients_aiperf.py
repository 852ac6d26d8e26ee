#!/usr/bin/env python3
# tags: integration clients heavy
# limit: 1500
"""The stock load generator `aiperf` against two prefill and two decode workers: completions at a fixed concurrency, chats at a rate, and chats of
which a part is given up half-way. Every request succeeds, the generator counts the tokens that the router billed (with a tokenizer of its own, made
from the model file), its times fit together, it reads the router's metrics page, and nothing is left over. Installed and skipped as in
clients_openai.py."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import pypi  # noqa: E402
from cluster import MODEL, SLOW, Cluster, Failure, check, main, need_model, skip  # noqa: E402
from streams import metric  # noqa: E402

NAME, REVISION = "penstock/tokenizer", "0" * 40
TOKENS = 24  # of each answer
LONG = 400   # of answers that are given up


def tokenizer_make(folder):
    """The model file's tokenizer, as a hub's cache folder holds it: the generator finds it there without a network."""
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    fields = GGUFReader(MODEL).fields

    def read(name):
        return fields["tokenizer.ggml." + name].contents()
    if read("model") != "gpt2" or read("pre") != "smollm":
        skip("the tokenizer of this model file is not rebuilt here")
    texts = read("tokens")
    made = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, [tuple(pair.split(" ")) for pair in read("merges")]))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text, kind in zip(texts, read("token_type")) if kind == 3])
    home = os.path.join(folder, "hub", "models--" + NAME.replace("/", "--"))
    os.makedirs(os.path.join(home, "refs"))
    with open(os.path.join(home, "refs", "main"), "w", encoding="utf-8") as ref:
        ref.write(REVISION)
    PreTrainedTokenizerFast(tokenizer_object=made, eos_token=texts[read("eos_token_id")]).save_pretrained(os.path.join(home, "snapshots", REVISION))


class Profile:
    """One run of the generator: its summary, and what it says of each request."""

    def __init__(self, cluster, folder, name, *arguments, tokens=TOKENS):
        out = os.path.join(folder, name)
        command = [os.path.join(os.path.dirname(sys.executable), "aiperf"), "profile", "--model", cluster.model_name(), "--url",
                   f"http://{cluster.router_host}:{cluster.http_port}", "--tokenizer", NAME, "--isl", "120", "--isl-stddev", "40", "--osl", str(tokens),
                   "--extra-inputs", "ignore_eos:true", "--random-seed", "7", "--ui", "none", "--no-gpu-telemetry", "--workers-max", "2",
                   "--artifact-dir", out, *arguments]
        home = {"HF_HOME": folder, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "AIPERF_SERVER_METRICS_REACHABILITY_TIMEOUT": "60"}
        done = subprocess.run(command, env={**os.environ, **home}, capture_output=True, text=True, timeout=400 * SLOW, check=False)
        try:
            with open(os.path.join(out, "profile_export_aiperf.json"), encoding="utf-8") as file:
                self.summary = json.load(file)
            with open(os.path.join(out, "profile_export.jsonl"), encoding="utf-8") as file:
                self.requests = [json.loads(line) for line in file]
            with open(os.path.join(out, "server_metrics_export.json"), encoding="utf-8") as file:
                self.server = json.load(file)
        except OSError as e:
            raise Failure(f"{name}: {e}: {(done.stdout + done.stderr)[-3000:]}") from e
        check(done.returncode == 0, f"{name}: ended with {done.returncode}: {(done.stdout + done.stderr)[-3000:]}")

    def total(self, name):
        return self.summary[name]["avg"]

    def values(self, name):
        return [r["metrics"][name]["value"] for r in self.requests if name in r["metrics"]]


def billed(cluster):
    return {name: metric(cluster, f"penstock_{name}_tokens_total") for name in ("prompt", "generated")}


def all_succeed(profile, count):
    check(len(profile.requests) == count == profile.total("request_count"), f"{profile.summary['request_count']} of {count} requests")
    check(not profile.summary["error_summary"] and not any(r.get("error") for r in profile.requests), f"{profile.summary['error_summary']}")
    # What the generator counts itself: a text may be cut into other tokens than it was made of.
    own = profile.values("output_sequence_length")
    check(len(own) == count and max(abs(tokens - TOKENS) for tokens in own) <= TOKENS // 4, f"{own}")
    check(profile.values("usage_completion_tokens") == [TOKENS] * count, f"{profile.values('usage_completion_tokens')}")


def times_fit(profile):
    """A stream's first token comes before its end, and the gaps behind it are what is left; one that takes no time was not measured."""
    for r in profile.requests:
        m = {name: value["value"] for name, value in r["metrics"].items()}
        first, whole, gap = m["time_to_first_token"], m["request_latency"], m["inter_token_latency"]
        check(0 < first < whole and abs(first + gap * (m["output_sequence_length"] - 1) - whole) < 1 + whole / 100, f"{m}")
    tokens = profile.total("output_token_throughput") / profile.total("request_throughput")
    check(abs(tokens - sum(profile.values("output_sequence_length")) / len(profile.requests)) < 0.01, f"{tokens} tokens a request")


def completions(cluster, folder):
    before = billed(cluster)
    run = Profile(cluster, folder, "completions", "--endpoint-type", "completions", "--streaming", "--concurrency", "8", "--request-count", "32")
    all_succeed(run, 32)
    times_fit(run)
    check(run.values("input_sequence_length") == run.values("usage_prompt_tokens"), "the generator and the router count prompts differently")
    after = billed(cluster)
    check(after["generated"] - before["generated"] == 32 * TOKENS, f"{before} {after}")
    check(after["prompt"] - before["prompt"] == sum(run.values("usage_prompt_tokens")), f"{before} {after}")
    check(run.server["summary"]["endpoints_successful"] and "penstock_time_to_first_token_seconds" in run.server["metrics"], "no metrics page was read")
    lives = [r for r in cluster.json("GET", "/requests")["requests"] if r["decode_worker"]]
    workers = {r["prefill_worker"] for r in lives} | {r["decode_worker"] for r in lives}
    check(len(workers - {None, ""}) == 4, f"not all workers were used: {workers}")
    print(f"completions: {run.total('output_token_throughput'):.1f} tokens/s, first token {run.total('time_to_first_token'):.0f} ms")


def chats(cluster, folder):
    run = Profile(cluster, folder, "chats", "--endpoint-type", "chat", "--streaming", "--request-rate", "4", "--request-count", "24")
    all_succeed(run, 24)
    times_fit(run)
    more = {theirs - own for own, theirs in zip(run.values("input_sequence_length"), run.values("usage_prompt_tokens"))}
    check(min(more) > 0 and max(more) - min(more) <= 2, f"the template adds {more} tokens")
    print(f"chats: {run.total('output_token_throughput'):.1f} tokens/s, first token {run.total('time_to_first_token'):.0f} ms")


def given_up(cluster, folder):
    """Whole answers, some of whose clients leave: those are aborted, the others are answered."""
    before = metric(cluster, "penstock_requests_total", outcome="abort")
    run = Profile(cluster, folder, "given-up", "--endpoint-type", "chat", "--concurrency", "8", "--request-count", "24",
                  "--request-cancellation-rate", "40", "--request-cancellation-delay", "0.2", "--use-server-token-count", tokens=LONG)
    left = [r for r in run.requests if r["metadata"]["was_cancelled"]]
    kept = [r for r in run.requests if not r["metadata"]["was_cancelled"]]
    check(left and kept and not any(r.get("error") for r in kept), f"{len(left)} left, {len(kept)} stayed: {run.summary['error_summary']}")
    check(all(r["metrics"]["usage_completion_tokens"]["value"] == LONG for r in kept), "an answer that nobody gave up is short")
    cluster.until(f"{len(left)} more requests are aborted", lambda: metric(cluster, "penstock_requests_total", outcome="abort") - before == len(left))
    print(f"given up: {len(left)} of {len(run.requests)}")


def test():
    with tempfile.TemporaryDirectory() as folder:
        tokenizer_make(folder)
        with Cluster(2, 2) as cluster:
            for part in (completions, chats, given_up):
                part(cluster, folder)
                cluster.check_idle()


need_model()
pypi.run_with("aiperf", ["aiperf==0.13.0", "gguf==0.19.0"], skip)
main(test)
