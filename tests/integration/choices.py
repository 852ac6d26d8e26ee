#!/usr/bin/env python3
# tags: integration router
# limit: 200
"""Several answers to one request on a real cluster: n, best_of, lists of prompts; each is what it would be alone."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import Cluster, check, main, need_model, run_parts  # noqa: E402

PROMPTS = ["The capital of France is", "Water boils at", "Once upon a time"]


def ask(cluster, **more):
    body = {"model": cluster.model_name(), "prompt": PROMPTS[0], "max_tokens": 8, "temperature": 1.0, "seed": 5, **more}
    return cluster.json("POST", "/v1/completions", body)


def texts(answer):
    check([c["index"] for c in answer["choices"]] == list(range(len(answer["choices"]))), f"{answer}")
    return [c["text"] for c in answer["choices"]]


def streamed(cluster, path="/v1/completions", **more):
    """The texts of all choices, and the order in which their chunks came."""
    body = {"model": cluster.model_name(), "max_tokens": 8, "temperature": 1.0, "seed": 5, "stream": True,
            "stream_options": {"include_usage": True}, **more}
    events = cluster.stream(path, body)
    check(events[-1] == "[DONE]" and events[-2]["choices"] == [], f"{events[-2:]}")
    found, order, finished = {}, [], set()
    for event in events[:-2]:
        choice = event["choices"][0]
        check(choice["index"] not in finished, f"something behind the end of choice {choice['index']}")
        text = choice["text"] if "text" in choice else choice["delta"].get("content", "")
        found[choice["index"]] = found.get(choice["index"], "") + text
        order.append(choice["index"])
        if choice["finish_reason"]:
            finished.add(choice["index"])
    check(finished == set(found), f"finished are {finished} of {set(found)}")
    return [found[i] for i in sorted(found)], order, events[-2]["usage"]


def several_choices(cluster):
    alone = texts(ask(cluster))
    answer = ask(cluster, n=4)
    found = texts(answer)
    check(len(found) == 4 and found[0] == alone[0], f"{found} begins with another answer than {alone}")
    check(len(set(found)) > 1, f"four draws are all equal: {found}")
    check(answer["usage"]["prompt_tokens"] == ask(cluster)["usage"]["prompt_tokens"], "the prompt counts once")
    check(answer["usage"]["completion_tokens"] == 32, f"{answer['usage']}")
    pieces, order, usage = streamed(cluster, prompt=PROMPTS[0], n=4)
    check(pieces == found, f"streamed {pieces}, whole {found}")
    check(any(a != b for a, b in zip(order, order[1:])) and order != sorted(order), f"one after the other: {order}")
    check(usage["completion_tokens"] == 32, f"{usage}")
    messages = [{"role": "user", "content": "Name a color."}]
    chat = cluster.chat(messages, n=3, max_tokens=6, seed=3, temperature=1.0)
    pieces, _, _ = streamed(cluster, "/v1/chat/completions", messages=messages, n=3, max_tokens=6, seed=3)
    check(pieces == [c["message"]["content"] for c in chat["choices"]], f"{pieces} is not {chat}")


def several_prompts(cluster):
    alone = [texts(ask(cluster, prompt=p, n=2)) for p in PROMPTS]
    answer = ask(cluster, prompt=PROMPTS, n=2)
    check(texts(answer) == sum(alone, []), f"{texts(answer)} is not {alone}")
    check(answer["usage"]["prompt_tokens"] == sum(ask(cluster, prompt=p)["usage"]["prompt_tokens"] for p in PROMPTS), f"{answer}")
    pieces, _, _ = streamed(cluster, prompt=PROMPTS, n=2)
    check(pieces == sum(alone, []), f"streamed {pieces}, alone {alone}")
    ids = [[504, 2365], [28], [504, 2365, 28]]
    check(texts(ask(cluster, prompt=ids)) == [texts(ask(cluster, prompt=i))[0] for i in ids], "lists of ids")


def the_best_of_some(cluster):
    every = ask(cluster, n=5, logprobs=0)
    def mean(choice):
        return sum(choice["logprobs"]["token_logprobs"]) / len(choice["logprobs"]["token_logprobs"])
    ranked = sorted(every["choices"], key=mean, reverse=True)
    best = ask(cluster, n=2, best_of=5, logprobs=0)
    check(texts(best) == [c["text"] for c in ranked[:2]], f"{texts(best)} is not {[c['text'] for c in ranked]}")
    check(best["usage"]["completion_tokens"] == every["usage"]["completion_tokens"], "all that was made is counted")
    both = ask(cluster, prompt=PROMPTS[:2], best_of=3)
    check(texts(both) == [texts(ask(cluster, prompt=p, best_of=3))[0] for p in PROMPTS[:2]], f"{both}")


def limits(cluster):
    for more, param in (({"n": 129}, "n"), ({"n": 0}, "n"), ({"prompt": ["a"] * 129}, "prompt"), ({"prompt": ["a", 5]}, "prompt[1]"),
                        ({"n": 3, "best_of": 2}, "best_of"), ({"best_of": 2, "stream": True}, "best_of")):
        body = {"model": cluster.model_name(), "prompt": "x", "max_tokens": 1, **more}
        error = cluster.json("POST", "/v1/completions", body, expect=400)["error"]
        check(error["param"] == param, f"{more}: {error}")


def test():
    with Cluster(1, 1) as cluster:
        run_parts((several_choices, several_prompts, the_best_of_some, limits), cluster)
        cluster.check_idle()


need_model()
main(test)
