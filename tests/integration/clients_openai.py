#!/usr/bin/env python3
# tags: integration clients
# limit: 300
"""The stock `openai` Python client streams and completes chat and completions. The client is installed from PyPI into a virtual
environment under the cache folder at first use; skipped where that is impossible."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import pypi  # noqa: E402
from cluster import Cluster, check, main, need_model, skip  # noqa: E402

def choices(client, model, messages):
    """n and log-probabilities, whole and streamed, and a prompt that is echoed."""
    several = client.chat.completions.create(model=model, messages=messages, max_tokens=8, n=3, temperature=1, seed=7, logprobs=True)
    check([c.index for c in several.choices] == [0, 1, 2] and len({c.message.content for c in several.choices}) > 1, f"{several}")
    check(all(len(c.logprobs.content) == 8 or c.finish_reason == "stop" for c in several.choices), f"{several}")
    texts = ["", "", ""]
    for chunk in client.chat.completions.create(model=model, messages=messages, max_tokens=8, n=3, temperature=1, seed=7, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    check(texts == [c.message.content for c in several.choices], f"streamed {texts}, whole {several.choices}")
    lists = client.completions.create(model=model, prompt=["One, two,", "A, B,"], max_tokens=4, n=2, temperature=0)
    check([c.index for c in lists.choices] == [0, 1, 2, 3] and lists.choices[0].text == lists.choices[1].text, f"{lists}")
    echo = client.completions.create(model=model, prompt="One, two, three,", max_tokens=2, temperature=0, echo=True, logprobs=2).choices[0]
    check(echo.text.startswith("One, two, three,") and echo.logprobs.token_logprobs[0] is None, f"{echo}")
    check(len(echo.logprobs.tokens) == len(echo.logprobs.token_logprobs) == len(echo.logprobs.top_logprobs), f"{echo}")
    best = client.completions.create(model=model, prompt="One, two, three,", max_tokens=4, best_of=3, temperature=1, seed=1)
    check(len(best.choices) == 1 and best.usage.completion_tokens > 4, f"{best}")


def test():
    import openai
    with Cluster(1, 1) as cluster:
        base = f"http://{cluster.router_host}:{cluster.http_port}/v1"
        client = openai.OpenAI(base_url=base, api_key="unused", max_retries=0, timeout=120)
        model = client.models.list().data[0].id
        check(client.models.retrieve(model).id == model, "GET /v1/models/{id}")
        messages = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Why is the sky blue?"}]
        whole = client.chat.completions.create(model=model, messages=messages, max_tokens=24, temperature=0, logprobs=True,
                                               top_logprobs=3)
        choice = whole.choices[0]
        check(len(choice.message.content) > 8, f"the answer is {choice.message.content!r}")
        check(choice.finish_reason in ("stop", "length"), f"finish reason {choice.finish_reason}")
        check(whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens, f"{whole.usage}")
        check(all(len(t.top_logprobs) == 3 for t in choice.logprobs.content), "three alternatives each")
        pieces, usage = [], None
        for chunk in client.chat.completions.create(model=model, messages=messages, max_tokens=24, temperature=0, stream=True,
                                                    stream_options={"include_usage": True}):
            if chunk.choices:
                pieces.append(chunk.choices[0].delta.content or "")
            usage = chunk.usage or usage
        check("".join(pieces) == choice.message.content, f"streamed {''.join(pieces)!r} is not {choice.message.content!r}")
        check(usage.completion_tokens == whole.usage.completion_tokens, f"{usage} is not {whole.usage}")
        plain = client.completions.create(model=model, prompt="One, two, three,", max_tokens=8, temperature=0)
        parts = [c.choices[0].text for c in client.completions.create(model=model, prompt="One, two, three,", max_tokens=8,
                                                                      temperature=0, stream=True) if c.choices]
        check("".join(parts) == plain.choices[0].text and parts, f"{parts} is not {plain.choices[0].text!r}")
        try:
            client.chat.completions.create(model="no-such-model", messages=messages)
            check(False, "an unknown model was answered")
        except openai.NotFoundError as e:
            check(e.body and e.body.get("message"), f"no error object: {e.body}")
        try:
            client.chat.completions.create(model=model, messages=messages, temperature=-1)
            check(False, "temperature -1 was accepted")
        except openai.BadRequestError as e:
            check(e.param == "temperature", f"param {e.param}")
        choices(client, model, messages)
        cluster.check_idle()


need_model()
pypi.run_with("openai", ["openai==1.99.9"], skip)
main(test)
