#!/usr/bin/env python3
# tags: integration model
# limit: 240
"""A prompt that is echoed with its log-probabilities, or gets them beside the answer, on a real cluster: the same numbers as when the text was
drawn, whoever computes it, whatever is known already, and when the worker dies over it."""
import json
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import Cluster, check, main, need_model  # noqa: E402

PROMPT = "Once upon a time there was a small house at the edge of the forest. "


def ask(cluster, **more):
    return cluster.json("POST", "/v1/completions", {"model": cluster.model_name(), "prompt": PROMPT, "max_tokens": 0, "temperature": 0,
                                                    **more})


def scores_of(choice):
    lp = choice["logprobs"]
    check(len(lp["tokens"]) == len(lp["token_logprobs"]) == len(lp["text_offset"]), f"{lp}")
    check(lp["token_logprobs"][0] is None and all(x < 0 for x in lp["token_logprobs"][1:]), f"{lp['token_logprobs']}")
    return lp


def drawn_and_scored_are_equal(cluster):
    drawn = ask(cluster, max_tokens=40, logprobs=2, ignore_eos=True)
    text = drawn["choices"][0]["text"]
    made = drawn["choices"][0]["logprobs"]
    for label, more in (("first", {}), ("again", {}), ("with one token", {"max_tokens": 1})):
        answer = ask(cluster, prompt=PROMPT + text, echo=True, logprobs=2, **more)
        choice, usage = answer["choices"][0], answer["usage"]
        lp = scores_of(choice)
        end = len(lp["tokens"]) - (1 if more else 0)
        begin = end - len(made["tokens"])
        check(lp["tokens"][begin:end] == made["tokens"], f"{label}: tokens {lp['tokens'][begin:end]} are not {made['tokens']}")
        check(lp["token_logprobs"][begin:end] == made["token_logprobs"], f"{label}: {lp['token_logprobs'][begin:end]}")
        check(lp["top_logprobs"][begin:end] == made["top_logprobs"] and lp["top_logprobs"][0] is None, f"{label}: top_logprobs")
        check(choice["text"].startswith(PROMPT + text) and choice["finish_reason"] == "length", f"{label}: {choice['text']!r}")
        check(all(choice["text"][o:].startswith(t) for o, t in zip(lp["text_offset"], lp["tokens"])), f"{label}: {lp['text_offset']}")
        check(usage["completion_tokens"] == (1 if more else 0) and usage["prompt_tokens"] == end, f"{label}: {usage}")
        check(usage["prompt_tokens_details"]["cached_tokens"] == 0, f"{label}: scores of known pages")
        if not more:
            check(choice["text"] == PROMPT + text, f"{label}: something follows the prompt: {choice['text']!r}")
    events = cluster.stream("/v1/completions", {"model": cluster.model_name(), "prompt": PROMPT + text, "echo": True, "logprobs": 2,
                                                "max_tokens": 3, "temperature": 0, "stream": True})[:-1]
    whole = ask(cluster, prompt=PROMPT + text, echo=True, logprobs=2, max_tokens=3)["choices"][0]
    check("".join(e["choices"][0]["text"] for e in events) == whole["text"], "streamed text")
    for member in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        parts = sum((e["choices"][0]["logprobs"][member] for e in events if e["choices"][0]["logprobs"]), [])
        check(parts == whole["logprobs"][member], f"streamed {member}: {parts}")
    return PROMPT + text, ask(cluster, prompt=PROMPT + text, echo=True, logprobs=2)["choices"][0]


def b007_scores_alone(cluster):
    """max_tokens 0: with log-probabilities and without, streamed, with n, with ids; nothing is generated, and JSON has no infinity."""
    def strict(name):
        raise ValueError(name)
    for more in ({}, {"logprobs": 1}, {"logprobs": 5, "top_k": 1}, {"logprobs": 1, "n": 2}, {"logprobs": 1, "prompt": [504, 2365, 28]}):
        asked = {"model": cluster.model_name(), "prompt": "The answer: Yes", "echo": True, "max_tokens": 0, **more}
        code, _, data = cluster.request("POST", "/v1/completions", asked)
        answer = json.loads(data, parse_constant=strict)
        check(code == 200 and answer["usage"]["completion_tokens"] == 0, f"{more}: {answer}")
        for choice in answer["choices"]:
            check(choice["finish_reason"] == "length" and ("prompt" in more or choice["text"] == "The answer: Yes"), f"{more}: {choice}")
            check("logprobs" not in more or len(scores_of(choice)["tokens"]) == answer["usage"]["prompt_tokens"], f"{more}: {choice}")
        events = cluster.stream("/v1/completions", {**asked, "stream": True})
        check(events[-1] == "[DONE]", f"{events}")
        check("".join(e["choices"][0]["text"] for e in events[:-1] if e["choices"][0]["index"] == 0) == answer["choices"][0]["text"], f"{events}")
    cluster.json("POST", "/v1/completions", {"model": cluster.model_name(), "prompt": "x", "max_tokens": 0}, expect=400)


def text_alone(cluster):
    check(ask(cluster, echo=True)["choices"][0]["text"] == PROMPT, "the prompt alone")
    two = ask(cluster, prompt=["One", "Two and"], echo=True, max_tokens=2, n=2, logprobs=0)
    check([c["text"].startswith(p) for c, p in zip(two["choices"], ["One", "One", "Two and", "Two and"])] == [True] * 4, f"{two}")
    for body, param in (({"max_tokens": 0}, "max_tokens"), ({"max_tokens": -1}, "max_tokens"), ({"echo": 1}, "echo")):
        error = cluster.json("POST", "/v1/completions", {"model": cluster.model_name(), "prompt": PROMPT, **body}, expect=400)["error"]
        check(error["param"] == param, f"{body}: {error}")


def beside_the_answer(cluster, text, expected):
    """prompt_logprobs: the numbers of an echo, and nothing of the answer is another; of chats too."""
    plain = ask(cluster, prompt=text, max_tokens=4)["choices"][0]
    for more in ({}, {"logprobs": 1}, {"n": 2}):
        answer = ask(cluster, prompt=text, max_tokens=4, prompt_logprobs=2, **more)
        for choice in answer["choices"]:
            told, lp = choice["prompt_logprobs"], expected["logprobs"]
            check(choice["text"] == plain["text"] and len(told) == answer["usage"]["prompt_tokens"] == len(lp["tokens"]) and told[0] is None, f"{choice}")
            check("logprobs" not in more or len(choice["logprobs"]["tokens"]) == 4, f"the answer's own: {choice['logprobs']}")
            for entry, token, logprob, tops in list(zip(told, lp["tokens"], lp["token_logprobs"], lp["top_logprobs"]))[1:]:
                own = next(iter(entry.values()))
                check((own["decoded_token"], own["logprob"]) == (token, logprob), f"{entry} is not {token!r} {logprob}")
                check({e["decoded_token"]: e["logprob"] for e in entry.values()} == {token: logprob, **tops}, f"{entry} is not {tops}")
                ranked = [e["logprob"] for e in sorted(entry.values(), key=lambda e: e["rank"] or 99)]
                check(ranked == sorted(ranked, reverse=True) and (own["rank"] is None) == (token not in tops), f"{entry}")
    scored = ask(cluster, prompt=text, prompt_logprobs=0, max_tokens=1)["choices"][0]["prompt_logprobs"]
    check([len(entry) for entry in scored[1:]] == [1] * (len(scored) - 1), "the tokens alone")
    messages = [{"role": "user", "content": "Why is the sky blue?"}]
    chat = cluster.chat(messages, prompt_logprobs=1, max_tokens=4, temperature=0)
    ids = cluster.json("POST", "/tokenize", {"messages": messages})["tokens"]
    check([int(next(iter(entry))) for entry in chat["prompt_logprobs"][1:]] == ids[1:], f"{chat['prompt_logprobs']}")
    direct = ask(cluster, prompt=ids, prompt_logprobs=1, max_tokens=1)["choices"][0]
    check(direct["prompt_logprobs"] == chat["prompt_logprobs"] and "prompt_logprobs" not in chat["choices"][0], "a chat's are its prompt's")
    check("prompt_logprobs" not in plain, "nobody asked")


def a_killed_worker_changes_nothing(cluster, text, expected):
    """The prefill worker dies over the prompt; from then on the decode worker computes prompts itself."""
    long = text * 6
    truth = ask(cluster, prompt=long, echo=True, logprobs=1)["choices"][0]
    found = []
    thread = threading.Thread(target=lambda: found.append(ask(cluster, prompt=long, echo=True, logprobs=1)["choices"][0]))
    thread.start()
    cluster.until("it is placed", lambda: cluster.state()["requests_running"] > 0)
    cluster.of("prefill")[0].kill()
    thread.join()
    check(found and found[0] == truth, "the scores are others after a worker was killed")
    check(ask(cluster, prompt=text, echo=True, logprobs=2)["choices"][0] == expected, "the scores are others by the decode worker")


def test():
    with Cluster(1, 1) as cluster:
        text, expected = drawn_and_scored_are_equal(cluster)
        print("drawn and scored are equal")
        b007_scores_alone(cluster)
        print("scores alone are right")
        text_alone(cluster)
        print("text alone is right")
        beside_the_answer(cluster, text, expected)
        print("beside the answer they are the same")
        a_killed_worker_changes_nothing(cluster, text, expected)
        print("a killed worker changes nothing")
        cluster.check_idle()


need_model()
main(test)
