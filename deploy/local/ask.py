"""Asks a running router one question, prints the answer as it comes and then the request's time line.

    python3 deploy/local/ask.py PORT [QUESTION]
"""
import http.client
import json
import sys
import textwrap
import time

HOST = "127.0.0.1"
# Long enough that a prefill worker computes it: a short prompt skips the hand-over.
QUESTION = ("A penstock is a pipe with a gate. It carries water, which is stored behind a dam, down to a turbine. "
            "The gate decides how much water flows. The falling water turns the turbine, and the turbine turns a "
            "generator that makes electricity. Explain in your own words what a penstock is, and what happens to the "
            "electricity when its gate closes.")
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


# The times of /requests/{id}, as a person reads them.
TIMES = {
    "arrived": "arrived", "parsed": "read and tokenised", "routed": "routed",
    "prefill_begun": "prefill begun", "prefill_done": "prefill done", "first_page": "first page",
    "last_page": "last page", "handed_over": "handed over", "first_step": "first decode step",
    "first_token": "first token", "first_byte": "first byte", "done": "done",
}
BAR = 40


def finished_record(port, request_id):
    """The request's record, once the workers have reported what they did for it."""
    deadline = time.monotonic() + 2
    while True:
        status, record = get_json(port, "/requests/%s" % request_id)
        if status != 200:
            raise Failure("the router does not explain request %s (status %d)" % (request_id, status))
        if record["times_ms"].get("done") is not None or time.monotonic() > deadline:
            return record
        time.sleep(0.05)


def print_time_line(port, request_id):
    record = finished_record(port, request_id)
    times = [(at, name) for name, at in record["times_ms"].items() if at is not None]
    end = max(at for at, _ in times) or 1
    print("\ntime line of %s" % request_id)
    for at, name in sorted(times, key=lambda row: row[0]):
        bar = "\u00b7" * round(BAR * max(at, 0) / end)
        print("  %-20s %10.1f ms  %s|" % (TIMES.get(name, name.replace("_", " ")), at, bar))
    where = "prefill on %s" % record["prefill_worker"]
    if not record["prefill_worker"]:
        where = "prefill on the decode worker (%s)" % (record["local_prefill"] or "short prompt")
    errors = record["clock_error_ms"]
    print("  %s, decode on %s; %.1f MiB of KV pages handed over; clocks agree to %.1f ms" % (
        where, record["decode_worker"], record["handed_over_bytes"] / 2**20, max(errors.values())))


def ask(port, question):
    """True when the answer is complete. What the router says wrongly is a Failure as well."""
    try:
        return ask_and_print(port, question)
    except (KeyError, TypeError, ValueError, OSError, http.client.HTTPException) as failure:
        raise Failure("the router's answer was not understood (%r)" % failure) from None


def ask_and_print(port, question):
    print("\n%s\n" % textwrap.fill(question, 96, initial_indent="> ", subsequent_indent="  "), flush=True)
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
