#!/usr/bin/env python3
# tags: integration clients
# limit: 300
"""The stock `openai` Python client gets structured output: its pydantic helper parses the answer into the caller's own type, and a stream under a
schema is whole JSON at its end. Installed and skipped as in clients_openai.py."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import pypi  # noqa: E402
from cluster import Cluster, check, main, need_model, skip  # noqa: E402


def test():
    import enum
    import typing

    import openai
    import pydantic

    class Unit(str, enum.Enum):
        gram = "gram"
        piece = "piece"

    class Ingredient(pydantic.BaseModel):
        name: typing.Annotated[str, pydantic.Field(min_length=1, max_length=16)]
        amount: typing.Annotated[int, pydantic.Field(ge=1, le=999)]
        unit: Unit
        note: typing.Optional[typing.Annotated[str, pydantic.Field(max_length=12)]]

    class Recipe(pydantic.BaseModel):
        title: typing.Annotated[str, pydantic.Field(max_length=24)]
        ingredients: typing.Annotated[list[Ingredient], pydantic.Field(min_length=1, max_length=2)]

    with Cluster(1, 1) as cluster:
        client = openai.OpenAI(base_url=f"http://{cluster.router_host}:{cluster.http_port}/v1", api_key="unused", max_retries=0, timeout=120)
        model = client.models.list().data[0].id
        messages = [{"role": "user", "content": "Give me the recipe of a simple cake."}]
        for seed in range(4):
            answer = client.chat.completions.parse(model=model, messages=messages, response_format=Recipe, temperature=1.3, seed=seed,
                                                   max_tokens=300)
            recipe = answer.choices[0].message.parsed
            check(answer.choices[0].finish_reason == "stop" and isinstance(recipe, Recipe) and recipe.ingredients, f"{answer}")
        pieces = [c.choices[0].delta.content or "" for c in client.chat.completions.create(
            model=model, messages=messages, stream=True, max_tokens=300, seed=1, temperature=1,
            response_format={"type": "json_schema", "json_schema": {"name": "recipe", "schema": Recipe.model_json_schema()}}) if c.choices]
        Recipe.model_validate(json.loads("".join(pieces)))
        choice = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Is water wet?"}], max_tokens=5,
                                                extra_body={"structured_outputs": {"choice": ["yes", "no"]}})
        check(choice.choices[0].message.content in ("yes", "no"), f"{choice}")
        try:
            client.chat.completions.create(model=model, messages=messages, response_format={"type": "json_schema", "json_schema": {
                "name": "x", "schema": {"type": "array", "unevaluatedItems": False}}})
            check(False, "a keyword that is not served was taken")
        except openai.BadRequestError as e:
            check(e.param == "response_format" and "unevaluatedItems" in e.message, f"{e.body}")
        cluster.check_idle()


need_model()
pypi.run_with("openai", ["openai==1.99.9"], skip)
main(test)
