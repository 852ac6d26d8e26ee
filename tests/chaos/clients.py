"""Clients that know the right answer in advance."""
import http.client
import json
import random
import threading
import time

from cluster import SLOW

HUNG_SECONDS = 90 * SLOW  # without a byte: the retry budget and every deadline are far shorter

THEMES = ("The harbour master counted the ships twice that evening", "A recipe for bread needs patience and a warm kitchen",
          "def merge(left, right):\n    result = []\n    while left and right:", "The oldest tree in the valley was planted by a monk",
          "Rain had fallen for three days when the bridge gave way", "In the museum there is a clock that runs backwards")


def requests(seed, count):
    """So many requests: greedy and sampled, streamed and not, short and long, some with a beginning in common."""
    random_ = random.Random(f"{seed} requests")
    made = []
    for i in range(count):
        theme = THEMES[i % len(THEMES)]
        repeats = random_.choice((1, 2, 6, 12, 30, 45))
        body = {"prompt": " ".join([theme] * repeats) + ("" if i % 3 else f" {i}"), "max_tokens": random_.randint(16, 100),
                "temperature": 0}
        if i % 2:
            body.update(temperature=random_.choice((0.6, 1.0)), seed=i, top_p=0.95)
        if i % 5 == 1:
            body.update(presence_penalty=0.6, frequency_penalty=0.4)
        if i % 5 == 3:
            body.update(stop=[random_.choice((".", "\n", " the", " and"))])
        if i % 4 == 2:
            body.update(ignore_eos=True)
        if i % 7 == 5:
            body.update(repetition_penalty=1.15)
        made.append((body, i % 4 != 3))
    return made


class Answer:
    """Text, finish reason and usage of one answer, or why there is none; and its longest silence."""

    def __init__(self):
        self.text, self.finish, self.usage, self.error, self.pause = "", None, None, None, 0.0

    def same(self, other):
        return (self.text, self.finish, self.usage) == (other.text, other.finish, other.usage)


def counted(usage):
    return usage and (usage["prompt_tokens"], usage["completion_tokens"])


def ask(address, model, body, streamed):
    answer, last = Answer(), time.monotonic()
    connection = http.client.HTTPConnection(*address, timeout=HUNG_SECONDS)
    sent = dict(body, model=model, **({"stream": True, "stream_options": {"include_usage": True}} if streamed else {}))
    try:
        connection.request("POST", "/v1/completions", json.dumps(sent), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            answer.error = f"status {response.status}: {response.read()[:300]!r}"
            return answer
        if not streamed:
            whole = json.loads(response.read())
            choice = whole["choices"][0]
            answer.text, answer.finish, answer.usage = choice["text"], choice["finish_reason"], counted(whole["usage"])
            return answer
        done = False
        for line in response:
            if not line.startswith(b"data: "):
                continue
            now = time.monotonic()
            answer.pause, last = max(answer.pause, now - last), now
            if line.strip() == b"data: [DONE]":
                done = True
                break
            event = json.loads(line[6:])
            if "error" in event:
                answer.error = f"error event: {event['error']}"
                return answer
            for choice in event["choices"]:
                answer.text += choice["text"]
                answer.finish = choice["finish_reason"] or answer.finish
            answer.usage = counted(event.get("usage")) or answer.usage
        if not done:
            answer.error = "the stream was cut"
    except TimeoutError:
        answer.error = "hung"
    except (OSError, http.client.HTTPException, ValueError) as e:
        answer.error = f"connection: {type(e).__name__} {e}"
    finally:
        connection.close()
    return answer


class Lanes:
    """Client threads that ask, again and again, what they know the answer of."""

    def __init__(self, world, model, truths, seed, count):
        self.world, self.model, self.truths = world, model, truths
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.asked = self.cut_by_router = 0
        self.wrong, self.lost, self.hung = [], [], []
        self.longest_pause, self.longest_at = 0.0, ""
        self.threads = [threading.Thread(target=self._lane, args=(random.Random(f"{seed} lane {i}"),)) for i in range(count)]

    def begin(self):
        for thread in self.threads:
            thread.start()

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def _lane(self, random_):
        while not self.over.is_set():
            body, streamed, truth = random_.choice(self.truths)
            router = self.world.router_for(random_)
            life = router.life
            answer = ask(router.address, self.model, body, streamed)
            with self.lock:
                self._count(body, streamed, truth, answer, router, life)

    def _count(self, body, streamed, truth, answer, router, life):
        self.asked += 1
        if answer.error and (router.life != life or router.down):
            self.cut_by_router += 1  # a router's death costs its own open connections, and only those
            return
        when = f"{time.strftime('%H:%M:%S')} {json.dumps(body)[:160]} ({'streamed' if streamed else 'whole'}, {router.name})"
        if answer.error == "hung":
            self.hung.append(when)
        elif answer.error:
            self.lost.append(f"{when}: {answer.error}")
        elif not answer.same(truth):
            self.wrong.append(f"{when}: {answer.text!r} {answer.finish} {answer.usage}, not {truth.text!r} {truth.finish} {truth.usage}")
        if streamed and not answer.error and answer.pause > self.longest_pause:
            self.longest_pause, self.longest_at = answer.pause, when
