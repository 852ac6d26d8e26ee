#!/usr/bin/env python3
# tags: integration clients
# limit: 400
"""The stock `openai` Python client calls tools: forced and required calls (which a grammar holds) whole and streamed, parsed by its
pydantic helper, and a whole turn with the tool's result. The small model knows no tools, so it gets a template that shows them; where the
file of a model that does is there, it decides by itself to call one."""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import pypi  # noqa: E402
from cluster import Cluster, check, main, need_model, run_parts, skip  # noqa: E402

TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{% if loop.first and tools %}{{ tools|tojson }}\n"
            "Calls go between <tool_call> and </tool_call>.\n{% endif %}{{ m.content or '' }}"
            "{% for c in m.tool_calls or [] %}\n<tool_call>\n{{ c.function|tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
QWEN = os.path.join(CACHE, "penstock", "models", "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf")
QUESTION = [{"role": "user", "content": "What is the weather in Oslo, in celsius?"}]


def weather():
    return {"type": "function", "function": {
        "name": "get_weather", "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20},
                                                        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
                       "required": ["city", "unit"], "additionalProperties": False}}}


def clock():
    return {"type": "function", "function": {"name": "clock", "parameters": {
        "type": "object", "properties": {"zone": {"type": "integer", "minimum": -12, "maximum": 12}}, "required": ["zone"],
        "additionalProperties": False}}}


def valid(call):
    """A call has a known name and arguments that keep to its schema."""
    arguments = json.loads(call.function.arguments)
    if call.function.name == "clock":
        check(list(arguments) == ["zone"] and -12 <= arguments["zone"] <= 12, f"{call}")
    else:
        check(call.function.name == "get_weather" and set(arguments) == {"city", "unit"}, f"{call}")
        check(arguments["unit"] in ("celsius", "fahrenheit") and len(arguments["city"]) <= 20, f"{call}")
    return call.function.name, arguments


def forced(client, model):
    tools = [weather(), clock()]
    ask = dict(model=model, messages=QUESTION, tools=tools, max_tokens=120)
    named = {"type": "function", "function": {"name": "clock"}}
    for seed in range(4):
        answer = client.chat.completions.create(tool_choice=named, temperature=1.5, seed=seed, **ask).choices[0]
        check(answer.finish_reason == "tool_calls" and answer.message.content is None, f"{answer}")
        check([valid(c)[0] for c in answer.message.tool_calls] == ["clock"], f"{answer}")
    for parallel in (True, False):
        answer = client.chat.completions.create(tool_choice="required", parallel_tool_calls=parallel, temperature=0.8, seed=1,
                                                **ask).choices[0]
        if answer.finish_reason == "length":
            continue
        names = [valid(c)[0] for c in answer.message.tool_calls]
        check(answer.finish_reason == "tool_calls" and names and (parallel or len(names) == 1), f"{answer}")
        check(len({c.id for c in answer.message.tool_calls}) == len(names), f"ids: {answer}")


def streamed(client, model):
    ask = dict(model=model, messages=QUESTION, tools=[weather()], tool_choice="required", parallel_tool_calls=False, temperature=0,
               max_tokens=120)
    whole = client.chat.completions.create(**ask).choices[0]
    calls, finish = {}, None
    for chunk in client.chat.completions.create(stream=True, **ask):
        choice = chunk.choices[0]
        finish = choice.finish_reason or finish
        check(not choice.delta.content, f"content beside a call: {choice}")
        for part in choice.delta.tool_calls or []:
            if part.index not in calls:
                check(part.id and part.type == "function", f"the head of a call: {part}")
                calls[part.index] = [part.function.name, ""]
            calls[part.index][1] += part.function.arguments
    expected = [[c.function.name, c.function.arguments] for c in whole.message.tool_calls]
    check(list(calls.values()) == expected and finish == "tool_calls", f"{calls} {finish} is not {expected}")
    with client.chat.completions.stream(**ask) as stream:
        message = stream.get_final_completion().choices[0].message
    check(message.tool_calls[0].function.arguments == expected[0][1], f"{message}")


def parsed(client, model):
    """The pydantic helper: tools and response formats made from classes."""
    import enum
    import openai
    import pydantic

    class Unit(str, enum.Enum):
        celsius = "celsius"
        fahrenheit = "fahrenheit"

    class GetWeather(pydantic.BaseModel):
        city: str
        unit: Unit

    class Answer(pydantic.BaseModel):
        good: bool
        count: int

    got = client.chat.completions.parse(model=model, messages=QUESTION, tools=[openai.pydantic_function_tool(GetWeather)],
                                        tool_choice="required", parallel_tool_calls=False, temperature=0, max_tokens=200)
    call = got.choices[0].message.tool_calls[0].function
    check(isinstance(call.parsed_arguments, GetWeather), f"{call}")
    got = client.chat.completions.parse(model=model, messages=QUESTION, response_format=Answer, temperature=0, max_tokens=200)
    check(isinstance(got.choices[0].message.parsed, Answer), f"{got}")


def whole_turn(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, tools=[weather()], tool_choice="required",
                                            parallel_tool_calls=False, temperature=0, max_tokens=120).choices[0].message
    talk = QUESTION + [answer, {"role": "tool", "tool_call_id": answer.tool_calls[0].id, "content": "4 degrees, rain"}]
    last = client.chat.completions.create(model=model, messages=talk, tools=[weather()], temperature=0, max_tokens=24).choices[0]
    check(last.finish_reason in ("stop", "length", "tool_calls"), f"{last}")


def refused(client, model):
    import openai
    for tools, choice, param in (([{"type": "function", "function": {"name": "a b"}}], "auto", "tools[0].function.name"),
                                 ([weather()], {"type": "function", "function": {"name": "nosuch"}}, "tool_choice")):
        try:
            client.chat.completions.create(model=model, messages=QUESTION, tools=tools, tool_choice=choice)
            check(False, f"{param} was accepted")
        except openai.BadRequestError as failure:
            check(failure.param == param, f"{failure.param} is not {param}")


def auto(client, model):
    """A model that knows tools calls one where the question asks for it, and says why not elsewhere."""
    answer = client.chat.completions.create(model=model, messages=QUESTION, tools=[weather()], temperature=0, max_tokens=120).choices[0]
    print("by itself:", answer.finish_reason, answer.message.tool_calls or answer.message.content)
    for call in answer.message.tool_calls or []:
        check(call.function.name == "get_weather" and json.loads(call.function.arguments), f"{call}")


def served(cases, **more):
    import openai
    with Cluster(1, 1, **more) as cluster:
        client = openai.OpenAI(base_url=f"http://{cluster.router_host}:{cluster.http_port}/v1", api_key="unused", max_retries=0, timeout=120)
        model = client.models.list().data[0].id
        run_parts(cases, client, model)
        cluster.check_idle()


def test():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tools.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write(TEMPLATE)
        served([forced, streamed, parsed, whole_turn, refused], router=[f"router.chat_template={path}"])
    if os.path.exists(QWEN):
        served([forced, streamed, auto], model=QWEN)


need_model()
pypi.run_with("openai", ["openai==1.99.9"], skip)
main(test)
