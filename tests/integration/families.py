#!/usr/bin/env python3
# tags: integration models
# limit: 600
"""The whole cluster serves each model family: text and its token ids give one answer; its bits are equal alone, in a crowd, with prefill
remote and local, and with a prefix hit; a model without a chat template serves completions and refuses chat by name."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import SOURCE, Cluster, check, hashes, main, skip, together  # noqa: E402

# File, name of its reference data, whether it has a chat template.
MODELS = (("gemma-3-270m.Q4_K_M.gguf", "gemma3-270m", False),
          ("Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf", "qwen2.5-coder-0.5b", True))
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
SHARED = os.environ.get("PENSTOCK_SHARED") or os.path.join(SOURCE, "..", "shared")
GREEDY = dict(temperature=0, max_tokens=12, ignore_eos=True, logits_hash=True)


def prompts(name):
    """Texts with their token ids (the BOS in front where the model has one) from the reference logits; the last one is longer than
    Gemma's window."""
    wanted = ("capital", "counting", "docs_700")
    with open(os.path.join(SHARED, "golden", "logits", name + ".jsonl"), encoding="utf-8") as file:
        cases = {case["name"]: case for case in map(json.loads, file)}
    return [(cases[case]["text"], cases[case]["prompt_ids"]) for case in wanted]


def ask(cluster, prompt):
    answer = cluster.complete(prompt, **GREEDY)
    found = hashes(answer)
    check(len(found) == GREEDY["max_tokens"], f"{len(found)} hashes: {answer}")
    return answer["choices"][0]["text"], tuple(found)


def chat_check(cluster, has_template):
    body = {"model": cluster.model_name(), "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8}
    if has_template:
        answer = cluster.json("POST", "/v1/chat/completions", body)
        check(answer["usage"]["completion_tokens"] > 0, f"no answer: {answer}")
        return
    refusal = cluster.json("POST", "/v1/chat/completions", body, expect=400)
    check("no chat template" in refusal["error"]["message"] and cluster.model_name() in refusal["error"]["message"],
          f"the refusal should name the model and its lack: {refusal}")


def serve(path, name, has_template):
    truth = None
    for local_tokens in (0, 100000):
        with Cluster(1, 1, model=path, router=[f"policy.local_prefill_tokens={local_tokens}"]) as cluster:
            for text, ids in prompts(name):
                by_text, by_ids = ask(cluster, text), ask(cluster, ids)
                check(by_text == by_ids, f"{name}: {text!r} gives {by_text}, its ids {by_ids}")
            found = [ask(cluster, text) for text, _ in prompts(name)]
            truth = truth or found
            check(found == truth, f"{name}, local below {local_tokens}: {found} is not {truth}")
            crowd = together([lambda text=text: ask(cluster, text) for text, _ in prompts(name) * 3])
            check(crowd == truth * 3, f"{name}, in a crowd: {crowd} is not {truth}")
            chat_check(cluster, has_template)
            cluster.check_idle()


def test():
    served = 0
    for file, name, has_template in MODELS:
        path = os.path.join(CACHE, "penstock", "models", file)
        if os.path.exists(path) and os.path.exists(os.path.join(SHARED, "golden", "logits", name + ".jsonl")):
            serve(path, name, has_template)
            served += 1
    if served == 0:
        skip("no model beyond the default one is in the cache, or the shared reference data are missing")


if __name__ == "__main__":
    main(test)
