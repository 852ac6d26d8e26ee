#!/usr/bin/env python3
# tags: integration clients
# limit: 300
"""The stock `openai` Python client streams and completes chat and completions. The client is installed from PyPI into a virtual
environment under the cache folder at first use; skipped where that is impossible."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from cluster import Cluster, check, main, need_model, skip  # noqa: E402

VERSION = "openai==1.99.9"
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "penstock")
VENV = os.path.join(CACHE, "venv-openai")


def with_client():
    """Run again inside the virtual environment that has the client."""
    python = os.path.join(VENV, "bin", "python3")
    if not os.path.exists(python):
        os.makedirs(CACHE, exist_ok=True)
        made = subprocess.run([sys.executable, "-m", "venv", VENV], capture_output=True, text=True)
        if made.returncode:
            skip("no virtual environment: " + made.stderr.strip()[-200:])
    if subprocess.run([python, "-c", "import openai"], capture_output=True).returncode:
        got = subprocess.run([python, "-m", "pip", "install", "--quiet", VERSION], capture_output=True, text=True)
        if got.returncode:
            skip(f"cannot install {VERSION}: " + got.stderr.strip()[-200:])
    os.execv(python, [python, os.path.abspath(__file__), "inside"])


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
        cluster.check_idle()


if len(sys.argv) == 1:
    need_model()
    with_client()
main(test)
