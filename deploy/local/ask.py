"""Asks a running router one question, prints the answer as it comes and then the request's time line.

    python3 deploy/local/ask.py PORT [QUESTION]
"""
import http.client
import json
import sys

HOST = "127.0.0.1"
QUESTION = "Why is the sky blue? Answer in two sentences."
MAX_TOKENS = 160


class Failure(Exception):
    """One sentence."""


def get(port, path, timeout=10):
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8", "replace")
    finally:
        connection.close()


def get_json(port, path):
    status, body = get(port, path)
    return status, json.loads(body)


def model_name(port):
    status, models = get_json(port, "/v1/models")
    if status != 200 or not models["data"]:
        raise Failure("the router lists no model")
    return models["data"][0]["id"]


def events(response):
    """The decoded events of a stream; the last is None when the stream said [DONE]."""
    for line in response:
        line = line.strip()
        if line == b"data: [DONE]":
            yield None
            return
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def stream_answer(port, question, write):
    """(request id, finish reason or None, usage or None, whether the stream was ended properly)."""
    body = {"model": model_name(port), "stream": True, "stream_options": {"include_usage": True},
            "max_tokens": MAX_TOKENS, "temperature": 0,
            "messages": [{"role": "user", "content": question}]}
    connection = http.client.HTTPConnection(HOST, port, timeout=300)
    request_id, finish, usage, done = None, None, None, False
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise Failure("the router answered with status %d: %s" % (
                response.status, response.read(500).decode("utf-8", "replace").strip()))
        for event in events(response):
            if event is None:
                done = True
                continue
            if "error" in event:
                raise Failure("the answer broke off: %s" % event["error"].get("message", event["error"]))
            request_id = event.get("id", request_id)
            usage = event.get("usage") or usage
            for choice in event.get("choices", []):
                write(choice.get("delta", {}).get("content") or "")
                finish = choice.get("finish_reason") or finish
    except (OSError, http.client.HTTPException, ValueError) as failure:
        raise Failure("the stream broke off: %s" % failure) from None
    finally:
        connection.close()
    return request_id, finish, usage, done


def print_time_line(port, request_id):
    status, record = get_json(port, "/requests/%s" % request_id)
    if status != 200:
        raise Failure("the router does not explain request %s (status %d)" % (request_id, status))
    print("\ntime line of %s:" % request_id)
    for name, milliseconds in record["timeline_ms"].items():
        if milliseconds is not None:
            print("  %-20s %10.1f ms" % (name.replace("_", " "), milliseconds))


def ask(port, question):
    """True when the answer is complete."""
    print("\n> %s\n" % question, flush=True)
    request_id, finish, usage, done = stream_answer(
        port, question, lambda text: print(text, end="", flush=True))
    print()
    if usage:
        print("\n%d prompt tokens, %d generated; it ended by: %s" % (
            usage["prompt_tokens"], usage["completion_tokens"], finish))
    print_time_line(port, request_id)
    sys.stdout.flush()
    return done and finish in ("stop", "length")


if __name__ == "__main__":
    try:
        sys.exit(0 if ask(int(sys.argv[1]), " ".join(sys.argv[2:]) or QUESTION) else 1)
    except (Failure, OSError, IndexError, ValueError) as trouble:
        print("ask.py: %s" % trouble, file=sys.stderr)
        sys.exit(1)
