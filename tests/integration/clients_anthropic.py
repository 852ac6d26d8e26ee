#!/usr/bin/env python3
# tags: integration clients
# limit: 300
"""The stock `anthropic` Python client: messages, whole and streamed, stop sequences, counting tokens, structured output, errors. Installed from
PyPI into a virtual environment under the cache folder at first use; skipped where that is impossible."""
import json
import os
import sys
import typing

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import pypi  # noqa: E402
from fakes import THINKER, templated  # noqa: E402
from cluster import Cluster, check, main, need_model, skip  # noqa: E402


def structured(client, model, messages):
    """The client's own helper parses the answer into the caller's type; streamed, the text is JSON of the schema."""
    import pydantic

    class Sky(pydantic.BaseModel):
        colour: typing.Literal["blue", "red", "grey"]
        cloudy: bool  # no numbers: the client takes their bounds out of the schema

    for seed in range(3):
        parsed = client.messages.parse(model=model, max_tokens=200, messages=messages, output_format=Sky,
                                       extra_body={"seed": seed, "temperature": 1.3})
        check(parsed.stop_reason == "end_turn" and isinstance(parsed.parsed_output, Sky), f"{parsed}")
    form = {"type": "json_schema", "schema": {**Sky.model_json_schema(), "additionalProperties": False}}
    with client.messages.stream(model=model, max_tokens=200, messages=messages, output_config={"format": form},
                                extra_body={"seed": 9, "temperature": 1.3}) as stream:
        Sky.model_validate(json.loads("".join(stream.text_stream)))


def thinking():
    """Blocks of thought, whole and streamed, and shown again in the next turn; the model says what the template makes it say."""
    import anthropic
    with templated(THINKER) as cluster:
        client = anthropic.Anthropic(base_url=f"http://{cluster.router_host}:{cluster.http_port}", api_key="unused", max_retries=0, timeout=120)
        messages = [{"role": "user", "content": "Hm.</think>Yes.END"}]
        asked = {"model": cluster.model_name(), "max_tokens": 1100, "messages": messages, "stop_sequences": ["END"],
                 "thinking": {"type": "enabled", "budget_tokens": 1024}}
        whole = client.messages.create(**asked)
        check([b.type for b in whole.content] == ["thinking", "text"] and whole.content[0].thinking == "Hm.", f"{whole}")
        check(whole.content[0].signature == whole.id and whole.content[1].text == "Yes.", f"{whole}")
        with client.messages.stream(**asked) as stream:
            kinds = [e.type for e in stream]
            final = stream.get_final_message()
        check("thinking" in kinds and "signature" in kinds and "text" in kinds, f"{kinds}")
        check(final.content[0].thinking == "Hm." and final.content[0].signature == final.id and final.content[1].text == "Yes.", f"{final}")
        talk = messages + [{"role": "assistant", "content": final.content}] + messages
        again = client.messages.create(**{**asked, "messages": talk, "thinking": {"type": "adaptive"}})
        check([b.type for b in again.content] == ["thinking", "text"], f"{again}")
        off = client.messages.create(**{**asked, "thinking": {"type": "disabled"}})
        check([b.type for b in off.content] == ["text"], f"{off}")
        try:
            client.messages.create(**{**asked, "thinking": {"type": "enabled", "budget_tokens": 1100}})
            check(False, "a budget as large as max_tokens was accepted")
        except anthropic.BadRequestError as e:
            check("thinking.budget_tokens" in e.body["error"]["message"], f"{e.body}")


def test():
    import anthropic
    thinking()
    with Cluster(1, 1) as cluster:
        client = anthropic.Anthropic(base_url=f"http://{cluster.router_host}:{cluster.http_port}", api_key="unused", max_retries=0, timeout=120)
        model = cluster.model_name()
        messages = [{"role": "user", "content": [{"type": "text", "text": "Why is the sky blue?"}]}]
        asked = {"model": model, "max_tokens": 24, "system": "You are terse.", "messages": messages,
                 "extra_body": {"temperature": 0}}
        whole = client.messages.create(**asked)
        check(whole.role == "assistant" and whole.content[0].type == "text" and len(whole.content[0].text) > 8, f"{whole}")
        check(whole.stop_reason in ("max_tokens", "end_turn") and whole.usage.output_tokens <= 24, f"{whole}")
        with client.messages.stream(**asked) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        check(text == whole.content[0].text == final.content[0].text, f"streamed {text!r}, whole {whole.content}")
        check(final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens, f"{final}")
        counted = client.messages.count_tokens(model=model, system=asked["system"], messages=messages)
        check(counted.input_tokens == whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0), f"{counted} {whole.usage}")
        stop = text[8:11]
        cut = client.messages.create(**asked, stop_sequences=[stop])
        check(cut.stop_reason == "stop_sequence" and cut.stop_sequence == stop, f"{cut}")
        check((cut.content[0].text if cut.content else "") == text[:text.index(stop)], f"{cut}")
        begun = client.messages.create(**{**asked, "messages": messages + [{"role": "assistant", "content": "Because"}]})
        check(begun.content and not begun.content[0].text.startswith("Because"), f"{begun}")
        structured(client, model, messages)
        try:
            client.messages.create(**{**asked, "model": "no-such-model"})
            check(False, "an unknown model was answered")
        except anthropic.NotFoundError as e:
            check(e.body["error"]["type"] == "not_found_error", f"{e.body}")
        try:
            client.messages.create(**{**asked, "max_tokens": 0})
            check(False, "max_tokens 0 was accepted")
        except anthropic.BadRequestError as e:
            check("max_tokens" in e.body["error"]["message"], f"{e.body}")
        cluster.check_idle()


need_model()
pypi.run_with("anthropic", ["anthropic==2.10.0"], skip)
main(test)
