#!/usr/bin/env python3
# tags: integration
# limit: 400
"""Answers under a JSON Schema, a pattern or a choice, at temperature 1.5: whoever ends with "stop" parses and is valid by an implementation of
the schema language that is not ours, whoever is cut is a beginning of such a text. The text is the same when a decode worker dies or leaves
half-way, and a schema that is not served is refused by its keyword."""
import json
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import pypi  # noqa: E402
from cluster import BUILD, SOURCE, Cluster, Failure, check, main, need_model, skip, together  # noqa: E402
from streams import PACE  # noqa: E402

CONCURRENT = 16
SHARED = os.path.join(SOURCE, "..", "shared", "golden", "json_schema", "cases.jsonl")
PERSON = {"type": "object", "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 4},
    "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["name", "age", "tags", "next"], "additionalProperties": False}
OWN = [PERSON, {"type": "array", "items": {"type": "number", "minimum": -1, "maximum": 1}, "minItems": 2, "maxItems": 5},
       {"oneOf": [{"type": "object", "properties": {"kind": {"const": kind}, "size": {"type": "integer", "multipleOf": 5, "minimum": 0,
        "maximum": 100}}, "required": ["kind", "size"], "additionalProperties": False} for kind in ("circle", "square")]},
       {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 3},
       {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}, {"type": "string", "format": "date"}]
PATTERN = r"(yes|no), because [a-z ]{3,40}[.!]"
CHOICES = ["red", "green", "light blue"]


def schemas():
    found = list(OWN)
    if os.path.exists(SHARED):
        with open(SHARED, encoding="utf-8") as lines:
            found += [case["schema"] for case in map(json.loads, lines.read().split("\n")[:-1]) if isinstance(case["schema"], dict)]
    return found


def ask(cluster, fields, seed):
    body = {"model": cluster.model_name(), "temperature": 1.5, "seed": seed, "max_tokens": 80,
            "messages": [{"role": "user", "content": "Make up some data in the form that is asked for, and be brief."}], **fields}
    code, _, data = cluster.request("POST", "/v1/chat/completions", body)
    return code, json.loads(data)


def schema_fields(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "data", "schema": schema, "strict": True}}}


def served(cluster, found):
    """Those of the schemas that are not refused; who is refused is refused as it should be."""
    kept = []
    for schema in found:
        code, answer = ask(cluster, dict(schema_fields(schema), max_tokens=1), 1)
        if code == 200:
            kept.append(schema)
            continue
        refusal = answer["error"]
        check(code == 400 and refusal["param"] == "response_format" and any(f"{k} " in refusal["message"] for k in json.dumps(schema).split('"')
              if k), f"{schema} is refused with {code}, {answer}")
    return kept


def validate(schema, text):
    import jsonschema
    value = json.loads(text)
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER).validate(value)


def prefixes_check(cut):
    """Each pair of a grammar's source and a text: the text can become one of the grammar."""
    tool = os.path.join(BUILD, "tools", "grammar-match")
    lines = "".join(json.dumps({"source": source, "text": text}) + "\n" for source, text in cut)
    result = subprocess.run([tool], input=lines, capture_output=True, text=True, check=True)
    for (source, text), match in zip(cut, result.stdout.splitlines(), strict=True):
        check(match in ("prefix", "complete"), f"{text!r} is cut, and {match} of {source}")


def generate(cluster, count):
    """`count` answers under the schemas in turn; how many ended by themselves."""
    kept = served(cluster, schemas())
    check(len(kept) >= len(OWN), f"only {len(kept)} schemas are served")
    stopped, cut = 0, []
    for begin in range(0, count, CONCURRENT):
        turns = [(kept[i % len(kept)], i) for i in range(begin, min(begin + CONCURRENT, count))]
        answers = together([lambda s=schema, i=i: ask(cluster, schema_fields(s), 1000 + i) for schema, i in turns])
        for (schema, _), (code, answer) in zip(turns, answers):
            check(code == 200, f"{schema}: {code} {answer}")
            choice = answer["choices"][0]
            text = choice["message"]["content"]
            if choice["finish_reason"] != "stop":
                check(choice["finish_reason"] == "length", f"finish reason {choice['finish_reason']}")
                # A character may be cut in its middle, which shows as U+FFFD.
                cut.append(("json_schema\n" + json.dumps(schema), text.rstrip("\ufffd")))
                continue
            try:
                validate(schema, text)
            except Exception as e:  # noqa: B902 - whatever the validator says
                raise Failure(f"{text!r} is not valid by {json.dumps(schema)}: {e}") from e
            stopped += 1
    prefixes_check(cut)
    print(f"{count} answers under {len(kept)} schemas: {stopped} ended and are valid, {len(cut)} were cut and are beginnings")
    check(stopped > count // 4, f"only {stopped} of {count} answers ended")


def other_forms(cluster):
    for seed in range(6):
        _, answer = ask(cluster, {"structured_outputs": {"regex": PATTERN}}, seed)
        text = answer["choices"][0]["message"]["content"]
        check(re.fullmatch(PATTERN, text), f"{text!r} does not match")
        _, answer = ask(cluster, {"structured_outputs": {"choice": CHOICES}, "logprobs": True}, seed)
        check(answer["choices"][0]["message"]["content"] in CHOICES, f"{answer} is none of {CHOICES}")
        check(answer["choices"][0]["finish_reason"] == "stop", f"{answer} did not stop")
        _, answer = ask(cluster, {"response_format": {"type": "json_object"}, "max_tokens": 200}, seed)
        if answer["choices"][0]["finish_reason"] == "stop":
            check(isinstance(json.loads(answer["choices"][0]["message"]["content"]), dict), f"{answer}")
    _, answer = ask(cluster, {"structured_outputs": {"choice": CHOICES}, "min_tokens": 60}, 1)
    check(answer["choices"][0]["message"]["content"] in CHOICES, "min_tokens goes on behind the end")


def text_of(events):
    check(events[-1] == "[DONE]", f"the stream has no end: {events[-2:]}")
    return "".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1] if e["choices"])


def same_text(cluster, number):
    """The decode worker of an answer gets a signal behind its 12th event: the text is as it is without."""
    body = {"model": cluster.model_name(), "temperature": 1.2, "seed": 5, "max_tokens": 160, **schema_fields(PERSON),
            "messages": [{"role": "user", "content": "Describe a family as data. " * 12}]}
    truth = text_of(cluster.stream("/v1/chat/completions", body))
    check(len(truth) > 60, f"{truth!r} is too short to be disturbed")
    seen, victims = [0], []

    def on_event(_):
        seen[0] += 1
        if seen[0] >= 12 and not victims:  # when heartbeats have said who is busy
            busy = [w["name"] for w in cluster.state()["workers"] if w["role"] == "decode" and w["sequences_running"] > 0]
            victims.extend(w for w in cluster.workers if w.name in busy)
            if victims:
                victims[0].kill(number)
    text = text_of(cluster.stream("/v1/chat/completions", body, on_event=on_event))
    check(victims, "no decode worker was busy behind the 12th event")
    check(text == truth, f"{signal.Signals(number).name}: {text!r} is not {truth!r}")
    cluster.workers.remove(victims[0])
    cluster.workers.append(cluster.start_worker("decode"))
    cluster.wait_ready(1, 2)


def run(count):
    with Cluster(1, 2, router=["policy.local_prefill_tokens=0"], engine=["engine.max_sequences=32"], decode_set=PACE) as cluster:
        generate(cluster, count)
        other_forms(cluster)
        same_text(cluster, signal.SIGKILL)
        same_text(cluster, signal.SIGTERM)
        cluster.check_idle()


def begin(count):
    need_model()
    pypi.run_with("jsonschema", ["jsonschema==4.26.0", "rfc3339-validator==0.1.4"], skip)
    main(lambda: run(count))


if __name__ == "__main__":
    begin(64)
