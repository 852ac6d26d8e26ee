#!/usr/bin/env python3
# tags: integration router
# limit: 120
"""/v1/messages and count_tokens, /tokenize, /detokenize, /tokenizer_info, and what is not served, over workers without an engine."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fakes import THINKER, FakeCluster, templated  # noqa: E402
from cluster import check, main, run_parts  # noqa: E402
from raw_http import talk  # noqa: E402

SAID = [{"role": "user", "content": "The quick brown fox jumps over the lazy dog"}]


def body(cluster, **more):
    return {"model": cluster.model_name(), "max_tokens": 12, "messages": SAID, **more}


def streamed(cluster, **more):
    """(name, data) of every event."""
    code, headers, data = cluster.request("POST", "/v1/messages", body(cluster, stream=True, **more))
    check(code == 200 and headers["Content-Type"].startswith("text/event-stream"), f"{code} {headers}")
    events = []
    for block in data.decode().strip().split("\n\n"):
        lines = block.split("\n")
        if lines[0].startswith(":"):
            continue
        name, text = lines[0].removeprefix("event: "), lines[1].removeprefix("data: ")
        events.append((name, json.loads(text)))
        check(events[-1][1]["type"] == name, f"{events[-1]}")
    return events


def whole_and_streamed(cluster):
    answer = cluster.json("POST", "/v1/messages", body(cluster))
    check(answer["type"] == "message" and answer["role"] == "assistant" and answer["stop_reason"] == "max_tokens", f"{answer}")
    check([b["type"] for b in answer["content"]] == ["text"] and answer["content"][0]["text"], f"{answer}")
    check(answer["usage"]["output_tokens"] == 12 and answer["stop_sequence"] is None, f"{answer}")
    chat = cluster.chat(SAID, max_tokens=12)
    check(answer["content"][0]["text"] == chat["choices"][0]["message"]["content"], "the chat says something else")
    total = answer["usage"]["input_tokens"] + answer["usage"]["cache_read_input_tokens"]
    check(total == chat["usage"]["prompt_tokens"], f"{answer['usage']} {chat['usage']}")
    events = streamed(cluster)
    names = [name for name, _ in events]
    check(names[:2] == ["message_start", "content_block_start"] and
          names[-3:] == ["content_block_stop", "message_delta", "message_stop"], f"{names}")
    check(set(names[2:-3]) == {"content_block_delta"}, f"{names}")
    text = "".join(d["delta"]["text"] for n, d in events if n == "content_block_delta")
    check(text == answer["content"][0]["text"], f"{text!r}")
    check(events[0][1]["message"]["content"] == [] and events[-2][1]["delta"]["stop_reason"] == "max_tokens", f"{events}")
    check(events[-2][1]["usage"]["output_tokens"] == 12, f"{events[-2]}")
    stop = text[6:9]
    stopped = cluster.json("POST", "/v1/messages", body(cluster, stop_sequences=["\u2588", stop]))
    check(stopped["stop_reason"] == "stop_sequence" and stopped["stop_sequence"] == stop, f"{stopped}")
    check(stopped["content"][0]["text"] == text[:text.index(stop)], f"{stopped}")


def conversations(cluster):
    system = [{"type": "text", "text": "Be brief."}]
    blocks = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]},
              {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": ""}, {"type": "text", "text": "c"}]},
              {"role": "user", "content": "d"}]
    plain = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"},
             {"role": "user", "content": "d"}]
    count = cluster.json("POST", "/v1/messages/count_tokens", {"model": cluster.model_name(), "system": system, "messages": blocks})
    ids = cluster.json("POST", "/tokenize", {"model": cluster.model_name(), "messages": plain})
    check(count == {"input_tokens": ids["count"]}, f"{count} {ids}")
    check(cluster.json("POST", "/v1/messages/count_tokens", {"model": cluster.model_name(), "system": "Be brief.", "messages": blocks})
          == count, "system as a string")
    begun = cluster.json("POST", "/v1/messages/count_tokens", {"model": cluster.model_name(), "messages": SAID + [
        {"role": "assistant", "content": "The answer is"}]})
    check(begun["input_tokens"] > 0, "an answer that is begun")


def errors(cluster):
    good = body(cluster)
    for change, status, kind, says in (
            ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens"), ({"max_tokens": 0}, 400, "invalid_request_error", "max_tokens"),
            ({"max_tokens": "5"}, 400, "invalid_request_error", "max_tokens"), ({"model": "other"}, 404, "not_found_error", "other"),
            ({"messages": []}, 400, "invalid_request_error", "messages"), ({"messages": "x"}, 400, "invalid_request_error", "messages"),
            ({"messages": [{"role": "system", "content": "x"}]}, 400, "invalid_request_error", "messages[0].role"),
            ({"messages": [{"role": "user"}]}, 400, "invalid_request_error", "messages[0].content"),
            ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, 400, "invalid_request_error", "image"),
            ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, 400, "invalid_request_error", "messages[0].content[0]"),
            ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "x"}]}, SAID[0]]}, 400, "invalid_request_error", "input"),
            ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, 400, "invalid_request_error", "tool_use_id"),
            ({"system": 5}, 400, "invalid_request_error", "system"), ({"stop_sequences": "x"}, 400, "invalid_request_error", "stop_sequences"),
            ({"temperature": -1}, 400, "invalid_request_error", "temperature"), ({"thinking": {"type": "enabled"}}, 400, "invalid_request_error", "thinking.budget_tokens"),
            ({"tools": 5}, 400, "invalid_request_error", "tools"), ({"tool_choice": "auto"}, 400, "invalid_request_error", "tool_choice"),
            ({"mcp_servers": []}, 400, "invalid_request_error", "mcp_servers"), ({"max_tokens": 10 ** 9}, 400, "invalid_request_error", "maximum context")):
        answer = cluster.json("POST", "/v1/messages", {**good, **change}, expect=status)
        check(answer["type"] == "error" and set(answer["error"]) == {"type", "message"}, f"{change}: {answer}")
        check(answer["error"]["type"] == kind and says in answer["error"]["message"], f"{change}: {answer}")
    check(cluster.json("POST", "/v1/messages", {**good, "system": None, "stop_sequences": None, "tools": None, "metadata": {"user_id": "u"},
                                                "thinking": {"type": "disabled"}, "service_tier": "auto"})["type"] == "message", "null means absent")
    early_errors(cluster)


def thinking(cluster):
    """Turned on, the model's thought is a block in front of the text, signed with the answer's id; turned off, all is text."""
    said = [{"role": "user", "content": "Hm, a < b.\n</think>\n\nYes.END"}]
    asked = {"messages": said, "max_tokens": 1100, "temperature": 0, "stop_sequences": ["END"]}
    wish = {"type": "enabled", "budget_tokens": 1024}
    answer = cluster.json("POST", "/v1/messages", body(cluster, **asked, thinking=wish))
    signed = {"type": "thinking", "thinking": "Hm, a < b.", "signature": answer["id"]}
    check(answer["content"] == [signed, {"type": "text", "text": "Yes."}] and answer["stop_sequence"] == "END", f"{answer}")
    events = streamed(cluster, **asked, thinking=wish)
    deltas = [(d["index"], d["delta"]) for n, d in events if n == "content_block_delta"]
    starts = [d["content_block"] for n, d in events if n == "content_block_start"]
    check(starts == [{"type": "thinking", "thinking": "", "signature": ""}, {"type": "text", "text": ""}], f"{events}")
    check("".join(d.get("thinking", "") for i, d in deltas if i == 0) == "Hm, a < b.", f"{deltas}")
    check("".join(d.get("text", "") for i, d in deltas if i == 1) == "Yes.", f"{deltas}")
    names = [n if n != "content_block_delta" else d["delta"]["type"] for n, d in events]
    at = names.index("signature_delta")
    check(names.count("signature_delta") == 1 and names[at - 1:at + 2] == ["thinking_delta", "signature_delta", "content_block_stop"], f"{names}")
    check(events[at][1]["delta"]["signature"] == events[0][1]["message"]["id"], f"{events}")
    for more in ({"thinking": {"type": "disabled"}}, {}):
        answer = cluster.json("POST", "/v1/messages", body(cluster, **asked, **more))
        check(answer["content"] == [{"type": "text", "text": "Hm, a < b.\n</think>\n\nYes."}], f"{more}: {answer}")
    adaptive = cluster.json("POST", "/v1/messages", body(cluster, **asked, thinking={"type": "adaptive", "display": "summarized"}))
    check([b["type"] for b in adaptive["content"]] == ["thinking", "text"], f"{adaptive}")
    count = [cluster.json("POST", "/v1/messages/count_tokens", {"model": cluster.model_name(), "thinking": wish, "messages": [
        *said, {"role": "assistant", "content": content}, *said]})["input_tokens"] for content in (adaptive["content"], adaptive["content"][1:])]
    check(count[0] > count[1], f"thought of an earlier turn reaches the template: {count}")


def early_errors(cluster):
    """What is refused before anybody reads the body has the shape of the path too."""
    for path, theirs in ((b"/v1/messages", True), (b"/v1/messages/count_tokens", True), (b"/v1/messagesx", False), (b"/v1/completions", False)):
        head = b" " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        typed = b"POST" + head + b"Content-Type: application/json\r\n"
        for asked, status, kind in ((b"GET" + head + b"\r\n", 405, "invalid_request_error"),
                                    (b"POST" + head + b"Content-Length: 2\r\n\r\n{}", 415, "invalid_request_error"),
                                    (typed + b"\r\n", 411, "invalid_request_error"),
                                    (typed + b"Content-Length: %d\r\n\r\n" % (1 << 40), 413, "request_too_large" if theirs else "invalid_request_error"),
                                    (typed + b"Content-Length: 3\r\n\r\n\"\xff\"", 400, "invalid_request_error")):
            if path.endswith(b"x"):
                status, kind = 404, "not_found_error"
            got, _, data = talk(cluster, [asked]).partition(b"\r\n\r\n")
            answer = json.loads(data)
            check(got.startswith(b"HTTP/1.1 %d " % status) and answer["error"]["type"] == kind, f"{asked}: {got} {answer}")
            check((answer.get("type") == "error" and set(answer["error"]) == {"type", "message"}) if theirs else "param" in answer["error"], f"{asked}: {answer}")


def tokenizers(cluster):
    name = cluster.model_name()
    text = "Grüße, 🇨🇿 <|im_end|> the end"
    found = cluster.json("POST", "/tokenize", {"model": name, "prompt": text, "return_token_strs": True})
    check(found["count"] == len(found["tokens"]) == len(found["token_strs"]) and found["max_model_len"] > 0, f"{found}")
    back = cluster.json("POST", "/detokenize", {"model": name, "tokens": found["tokens"]})
    check(back == {"prompt": text}, f"{back}")
    check(cluster.json("POST", "/tokenize", {"model": name, "prompt": text})["token_strs"] is None, "texts come where they are asked for")
    check(cluster.json("POST", "/tokenize", {"model": name, "prompt": ""})["tokens"] == [], "an empty text")
    long = cluster.json("POST", "/tokenize", {"model": name, "prompt": "word " * 50000})
    check(long["count"] > 49000, "a text longer than the context is counted too")
    info = cluster.json("GET", "/tokenizer_info")["tokenizers"][0]
    check(info["model"] == name and info["vocab_size"] > 1000 and info["has_chat_template"] is True, f"{info}")
    check({**info, "tokenizers": [info]} == cluster.json("GET", "/tokenizer_info"), "the first model stands for itself too")
    check(cluster.json("POST", "/tokenize", {"prompt": text})["tokens"] == found["tokens"], "questions about tokens need no model name")
    # Two tokens of the word and its space at most; the last row is one too many for sure.
    for count, fits in ((1 << 17, True), (1 << 19, False)):
        for path, asked, param in (("/tokenize", {"prompt": " word" * count}, "prompt"), ("/detokenize", {"tokens": [7] * count}, "tokens"),
                                   ("/tokenize", {"messages": [{"role": "user", "content": " word" * count}]}, "messages")):
            answer = cluster.json("POST", path, asked, expect=200 if fits else 400)
            check(fits or (answer["error"]["param"] == param and "262144" in answer["error"]["message"]), f"{path} {count}: {str(answer)[:300]}")
    for path, change, param in (("/tokenize", {"prompt": 5}, "prompt"), ("/tokenize", {}, "prompt"), ("/tokenize", {"messages": 5}, "messages"),
                                ("/tokenize", {"prompt": "x", "add_special_tokens": 1}, "add_special_tokens"), ("/detokenize", {}, "tokens"),
                                ("/detokenize", {"tokens": [-1]}, "tokens[0]"), ("/detokenize", {"tokens": ["x"]}, "tokens[0]")):
        error = cluster.json("POST", path, {"model": name, **change}, expect=400)["error"]
        check(error["param"] == param, f"{path} {change}: {error}")


def unserved(cluster):
    for method, path in (("POST", "/v1/embeddings"), ("POST", "/v1/images/generations"), ("POST", "/v1/audio/speech"), ("POST", "/v1/responses"),
                         ("GET", "/v1/files"), ("GET", "/v1/files/x"), ("POST", "/v1/fine_tuning/jobs"), ("POST", "/v1/moderations"),
                         ("POST", "/v1/assistants"), ("POST", "/v1/threads"), ("POST", "/v1/batches")):
        error = cluster.json(method, path, {} if method == "POST" else None, expect=501)["error"]
        check(error["code"] == "endpoint_not_supported" and path in error["message"], f"{path}: {error}")


def test():
    with FakeCluster() as cluster:
        cluster.fake("prefill")
        cluster.fake("decode")
        run_parts((whole_and_streamed, conversations, errors, tokenizers, unserved), cluster)
        cluster.check_idle()
    with templated(THINKER) as cluster:
        thinking(cluster)


main(test)
