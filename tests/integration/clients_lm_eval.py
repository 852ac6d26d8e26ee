#!/usr/bin/env python3
# tags: integration clients heavy
# limit: 600
"""lm-eval's `local-completions` against two prefill and two decode workers: log-likelihoods of a small task of our own, tokenised by the
router. The scores are those of the same texts asked one by one, and most of the easy questions are answered right. Installed from PyPI
into a virtual environment under the cache folder at first use; skipped where that is impossible."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import pypi  # noqa: E402
from cluster import Cluster, check, main, need_model, skip  # noqa: E402

QUESTIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "eval", "sets", "easy.jsonl")
TASK = """task: penstock_easy
dataset_path: json
dataset_kwargs:
  data_files:
    test: %s
test_split: test
output_type: multiple_choice
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list:
  - metric: acc
"""
LIMIT = 24


def likelihood(cluster, context, continuation):
    """Of a continuation behind a context, asked directly."""
    def ids(text):
        return cluster.json("POST", "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
    whole, first = ids(context + continuation), len(ids(context))
    lp = cluster.json("POST", "/v1/completions", {"model": cluster.model_name(), "prompt": whole, "max_tokens": 0, "echo": True, "logprobs": 1,
                                                  "temperature": 0})["choices"][0]["logprobs"]
    return sum(lp["token_logprobs"][first:])


def test():
    with tempfile.TemporaryDirectory() as folder, Cluster(2, 2) as cluster:
        os.environ.update(HF_HOME=folder, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
        import lm_eval
        from lm_eval.tasks import TaskManager
        with open(os.path.join(folder, "penstock_easy.yaml"), "w", encoding="utf-8") as out:
            out.write(TASK % os.path.abspath(QUESTIONS))
        arguments = {"model": cluster.model_name(), "num_concurrent": 4, "max_retries": 1,
                     "base_url": f"http://{cluster.router_host}:{cluster.http_port}/v1/completions"}
        done = lm_eval.simple_evaluate(model="local-completions", model_args=arguments, tasks=["penstock_easy"], limit=LIMIT, batch_size=4,
                                       task_manager=TaskManager(include_path=folder, include_defaults=False), log_samples=True,
                                       bootstrap_iters=0)
        accuracy = done["results"]["penstock_easy"]["acc,none"]
        print(f"accuracy {accuracy:.3f} of {LIMIT}")
        check(accuracy > 0.5, f"accuracy {accuracy}: easy questions are answered wrong")
        for sample in done["samples"]["penstock_easy"][:4]:
            for request, answer in zip(sample["arguments"], sample["filtered_resps"]):
                expected = likelihood(cluster, request[0], request[1])
                check(abs(answer[0] - expected) < 1e-4, f"{request}: {answer} is not {expected}")
        cluster.check_idle()


need_model()
pypi.run_with("lm-eval", ["lm-eval[api]==0.4.13"], skip)
main(test)
