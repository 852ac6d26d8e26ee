#!/usr/bin/env python3
# tags: integration browser plain
# limit: 600
"""The page at / in headless Chromium, before a real cluster: it works by mouse and keyboard, says what is wrong, shows what others
wrote as text only, asks for a key, and talks to nobody but its router. Screenshots of each state stay in BUILD/artifacts/page.

Needs Debian's chromium, which `tests/run --tag browser` installs, and Playwright from PyPI, which comes into the cache folder at first
use; skipped without them."""
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import pypi  # noqa: E402
from cluster import BUILD, SLOW, Cluster, check, main, need_model, skip  # noqa: E402

ARTIFACTS = os.path.join(BUILD, "artifacts", "page")
WIDTHS = {390: 844, 1280: 900, 2560: 1440}
EVIL = "<img src=x onerror=window.harmed=1>"
PATIENCE = 60000 * SLOW  # ms


class Load:
    """Clients that chat until they are told to stop: answers of so many tokens, and pauses of so many seconds at most."""

    def __init__(self, cluster, clients, tokens=(16, 80), pause=1):
        self.cluster, self.tokens, self.pause, self.over = cluster, tokens, pause, threading.Event()
        self.threads = [threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def client(self, number):
        rng = random.Random(number)
        while not self.over.is_set():
            try:
                self.cluster.chat([{"role": "user", "content": "Rivers and mountains of the world. " * rng.randrange(4, 30)}],
                                  max_tokens=rng.randrange(*self.tokens), ignore_eos=not self.pause)
            except Exception:  # its worker was killed
                time.sleep(0.2)
            self.over.wait(self.pause * rng.random())

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


class Browser:
    """Pages that are watched: whatever goes wrong in one fails the test."""

    def __init__(self, playwright, cluster):
        self.address = f"http://{cluster.router_host}:{cluster.http_port}/"
        self.chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        self.wrong = []

    def page(self, width=1280, scheme="light", expect="nothing", **more):
        page = self.chromium.new_page(viewport={"width": width, "height": WIDTHS[width]}, color_scheme=scheme, reduced_motion="reduce", **more)
        page.set_default_timeout(PATIENCE)

        def console(message):
            if message.type in ("error", "warning") and expect not in message.text:
                self.wrong.append(f"console: {message.text}")
        page.on("console", console)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("request", lambda request: request.url.startswith(self.address) or self.wrong.append(f"asks another host: {request.url}"))
        page.on("response", lambda answer: answer.status == 404 and self.wrong.append(f"not found: {answer.url}"))
        page.goto(self.address)
        return page

    def drawn(self, **more):
        page = self.page(**more)
        page.wait_for_selector("#tiles div")
        page.wait_for_selector("#picture .card")
        return page

    def shots(self, state, widths=tuple(WIDTHS), schemes=("light", "dark")):
        for width in widths:
            for scheme in schemes:
                page = self.drawn(width=width, scheme=scheme)
                page.wait_for_timeout(1500)
                page.screenshot(path=os.path.join(ARTIFACTS, f"{state}-{width}-{scheme}.png"), full_page=True, timeout=PATIENCE)
                wide = page.evaluate("document.documentElement.scrollWidth")
                check(wide <= width, f"{state} at {width} px is {wide} px wide")
                page.close()


def wait_text(page, selector, words):
    page.wait_for_function("([s, w]) => document.querySelector(s)?.textContent.includes(w)", arg=[selector, words], timeout=PATIENCE)


def idle(browser, cluster):
    page = browser.drawn()
    wait_text(page, "#state", "ready")
    wait_text(page, "#alert-list", "Nothing needs attention.")
    check(page.inner_text("#no-requests") == "No request has come yet.", "an empty list says so")
    _, headers, markup = cluster.request("GET", "/")
    policy = headers["Content-Security-Policy"]
    check("default-src 'none'" in policy and "unsafe" not in policy, policy)
    check(b"style=" not in markup and b"<style" not in markup and b"<script>" not in markup, "style or script in the markup")
    page.close()
    browser.shots("idle", (1280,), ("light",))


def box(browser, cluster):
    """An answer streams in and is told with its speed; another one is stopped half-way. By keyboard alone."""
    page = browser.drawn(expect="400")
    page.keyboard.press("Tab")
    check(page.evaluate("document.activeElement.className") == "skip", "the first stop skips to the prompt")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.focus("#message")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    check(outline == "solid", f"focus is visible: {outline}")
    page.keyboard.press("Control+A")
    page.keyboard.type("Count from one to one hundred. " + EVIL)
    stops = []
    for _ in range(3):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.id"))
    check(stops == ["temperature", "max-tokens", "send"], f"stops of the Tab key: {stops}")
    page.fill("#max-tokens", "40")
    page.focus("#message")
    page.evaluate("""() => { window.pieces = 0;
        new MutationObserver(() => window.pieces++).observe(document.querySelector('#answer'), { childList: true }); }""")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#answer[aria-busy=false]")
    pieces = page.evaluate("window.pieces")
    check(pieces > 3, f"it streams: in {pieces} pieces")
    told = page.inner_text("#told")
    check(told.startswith(("complete", "cut at the limit")) and "tokens/s" in told and "first token after" in told, told)
    page.wait_for_selector("#answer-line rect.decode")
    page.fill("#max-tokens", "2000")
    page.focus("#message")
    page.keyboard.press("Control+Enter")
    page.wait_for_function("() => document.querySelector('#answer').textContent.length > 20")
    check(page.is_enabled("#stop") and page.is_disabled("#send"), "it can be stopped")
    page.keyboard.press("Escape")
    wait_text(page, "#told", "stopped")
    check(page.is_disabled("#stop") and page.is_enabled("#send"), "it was stopped")
    cluster.until("the router knows", lambda: any(r["outcome"] == "abort" for r in cluster.json("GET", "/requests")["requests"]))
    wait_text(page, "#rows", "abort")
    page.fill("#max-tokens", "0")
    page.evaluate("document.querySelector('#max-tokens').min = ''")
    page.click("#send")
    wait_text(page, "#told", "failed: ")
    check("max_tokens" in page.inner_text("#told"), "the router's sentence is shown")
    check(page.evaluate("window.harmed === undefined && !document.querySelector('img')"), "a prompt is text")
    page.close()


def names(page):
    """What a screen reader says of everything that can be reached."""
    return page.evaluate("""() => [...document.querySelectorAll('a, button, input, select, textarea, summary, [tabindex="0"]')]
        .filter(e => e.offsetParent || e instanceof SVGElement)
        .map(e => [e.id || e.tagName, e.getAttribute('aria-label') || (e.labels && e.labels[0] && e.labels[0].textContent) || e.textContent.trim()])""")


def under_load(browser, cluster):
    page = browser.drawn()
    page.evaluate("""() => { window.moved = 0;
        new PerformanceObserver(list => { for (const e of list.getEntries()) if (!e.hadRecentInput) window.moved += e.value; }).observe({ type: 'layout-shift' }); }""")
    page.wait_for_selector(".chart.decode path.value")
    page.wait_for_selector("#rows rect.decode")
    page.wait_for_timeout(5000)
    moved = page.evaluate("window.moved")
    check(moved < 0.1, f"the page jumps: layout shift {moved:.3f}")
    check(page.evaluate("document.getAnimations().length") == 0, "nothing moves by itself")
    unnamed = [where for where, name in names(page) if not name]
    check(not unnamed, f"without a name: {unnamed}")
    landmarks = page.evaluate("['header', 'main', 'h1'].map(n => document.querySelectorAll(n).length)")
    check(landmarks == [1, 1, 1], f"landmarks {landmarks}")
    chart = page.locator(".chart svg").first
    now = page.locator(".chart output").first.text_content()
    chart.focus()
    page.keyboard.press("ArrowLeft")
    check("s ago" in page.locator(".chart output").first.text_content(), f"the arrow keys look back from {now}")
    page.click("#history summary")
    check(page.locator("#minutes tr").count() >= 1, "the charts are a table too")
    page.click("#cluster summary")
    table = page.inner_text("#workers")
    check("prefill-1" in table and "decode-2" in table, table)
    opener = page.locator("#rows button").first
    opener.click()
    check(opener.get_attribute("aria-expanded") == "true" and page.locator("#rows .detail:visible").count() == 1, "a request tells more")
    page.close()
    browser.shots("load")


def bottleneck(browser, cluster):
    load = Load(cluster, 16, tokens=(400, 700), pause=0)  # for three places, on any machine
    page = browser.drawn()
    wait_text(page, "#alert-list .warning", "Decode is the bottleneck:")
    page.close()
    browser.shots("alert", (1280, 390), ("light",))
    load.stop()


def dead_worker(browser, cluster):
    load = Load(cluster, 2)
    page = browser.drawn()
    cluster.workers[1].kill()
    wait_text(page, "#alert-list", "The decode worker decode-2 died")
    wait_text(page, "#state", "not ready")
    page.wait_for_selector("#picture .card.gone")
    browser.shots("dead", (1280, 390), ("dark",))
    load.stop()
    cluster.workers[1] = cluster.start_worker("decode", ["worker.name=decode-2"])
    wait_text(page, "#state", "ready")
    page.wait_for_selector("#picture .card.gone", state="detached")
    page.close()


def foreign_text(browser):
    """Names that a worker or an operator chose are text, whatever they hold."""
    page = browser.drawn()

    def harm(route):
        answer = route.fetch()
        state = answer.json()
        for worker in state["workers"]:
            worker.update(name=EVIL, transport=EVIL, model=EVIL)
        for model in state["models"]:
            model.update(name=EVIL)
        state["alerts"] = [{"level": "bad", "code": "x", "text": EVIL}]
        route.fulfill(response=answer, json=state)
    page.route("**/cluster", harm)
    wait_text(page, "#alert-list", EVIL)
    wait_text(page, "#workers", EVIL)
    check(page.evaluate("window.harmed === undefined && !document.querySelector('img')"), "it became markup")
    page.close()


def many_workers(browser):
    page = browser.drawn(width=390)

    def many(route):
        answer = route.fetch()
        state = answer.json()
        state["workers"] = [dict(w, name=f"{w['role']}-{i}") for i in range(100) for w in state["workers"]]
        state["models"] *= 2
        state["models"] = [dict(m, name=name) for m, name in zip(state["models"], (state["model"], "another-model"))]
        route.fulfill(response=answer, json=state)
    page.route("**/cluster", many)
    page.wait_for_function("() => document.querySelectorAll('#picture .card').length >= 200")
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": WIDTHS[width]})
        page.wait_for_timeout(4000)
        page.screenshot(path=os.path.join(ARTIFACTS, f"many-{width}-light.png"), full_page=True, timeout=PATIENCE)
        wide = page.evaluate("document.documentElement.scrollWidth")
        check(wide <= width, f"many workers at {width} px are {wide} px wide")
    page.close()


def drafter(name, alpha, expected, needed, draft="", guessed=1000, below_s=0):
    right = round(guessed * alpha)
    return dict(name=name, draft=draft, right=right, wrong=guessed - right, behind=guessed // 5, alpha=alpha, low=alpha - .03, high=alpha + .03,
                outcomes=guessed, expected=expected, break_even=needed, below_s=below_s, tried=[guessed, right, right // 2],
                held=[right, right // 2, right // 4])


def told(sentence, states, alpha, needed, tokens, gained, drafters, name="interactive"):
    """A class of answers as a worker tells it; `states` are shares, and the first one is that of now."""
    return dict(name=name, sentence=sentence, state=next(iter(states)), drafter=drafters[-1]["name"], alpha=alpha, break_even=needed, tokens_per_step=1 + 2 * max(0, gained) / tokens, tokens_per_s=tokens, gained_per_s=gained,
                states=[dict(name=n, rows=int(1000 * s), share=s) for n, s in states.items()], drafters=drafters)


ON = ("on: of 100 guesses from small-coder, 82 are right (alpha 0.82); at batch 2 (answers in a step) 55 are needed; 2.40 tokens a step, "
      "41.0 tokens/s instead of 24.0")
BELOW = ("off: of 100 guesses from small-coder, 48 are right (alpha 0.48); at batch 16 (answers in a step) 71 are needed to pay for checking them "
         "(break-even 0.71; rule of thumb 0.6)")
PROMPTS = "off for now: prompts are computed in the same steps, and beside them nothing is guessed"


def tell_guesses(state):
    """One decode worker guesses with success, and another one is full and does not; the batch class waits for prompts there."""
    prefill, decode = [[w for w in state["workers"] if w["role"] == role] for role in ("prefill", "decode")]
    first, second = dict(decode[0], name="decode-1"), dict(decode[0], name="decode-2")
    text = drafter("ngram", .61, .44, .55)
    first["guesses"] = dict(sentence=ON, break_even=.55, batch=2, steps_on=700, steps_probing=10, steps_off=250, steps_prompts=40, drafters=[], classes=[
        told(ON, dict(on=.72, probing=.01, no_guess=.17, prompts=.06, measuring=.04), .82, .55, 41, 17, [text, drafter("model", .82, .8, .55, "small-coder")])])
    second.update(model="another-model")
    model = drafter("model", .5, .48, .71, "small-coder", below_s=300)
    second["guesses"] = dict(sentence=BELOW, break_even=.71, batch=16, steps_on=0, steps_probing=10, steps_off=250, steps_prompts=40, drafters=[], classes=[
        told(BELOW, dict(below_break_even=.85, probing=.01, prompts=.14), .48, .71, 190, -1, [model]),
        told(PROMPTS, dict(prompts=.7, below_break_even=.29, probing=.01), .48, .71, 35, -.4, [model], "batch")])
    state["workers"] = [*prefill, first, second]
    state["models"] = [state["models"][0], dict(state["models"][0], name="another-model")]


def guessed(browser, cluster):
    """Whoever has never heard of alpha reads why guesses are on or off; of the real cluster, and of one that is made up."""
    repeat = "one two three four five six seven eight nine ten, " * 12
    cluster.chat([{"role": "user", "content": repeat + "Say it again."}], max_tokens=120, ignore_eos=True, temperature=0)
    page = browser.drawn()
    page.wait_for_selector("#guesses", state="visible")
    real = page.inner_text("#guess-cards")
    check("Interactive answers" in real and "Steps of these answers" in real, real)
    check(not any(w in real for w in ("NaN", "undefined", "Infinity")), real)
    status = subprocess.run([os.path.join(BUILD, "bin", "penstock"), "status", "--once", "--router", browser.address.rstrip("/")],
                            capture_output=True, text=True, check=True).stdout
    check(re.search(r"\n  decode-2 +guesses for interactive answers are (on|off|waiting)", status), f"penstock status says it too: {status}")

    def made_up(route):
        answer = route.fetch()
        state = answer.json()
        tell_guesses(state)
        route.fulfill(response=answer, json=state)
    page.route("**/cluster", made_up)
    wait_text(page, "#guess-cards", "another-model: batch answers")
    page.wait_for_timeout(5000)  # its charts have something to draw
    cards = page.locator("#guess-cards .guess").all_inner_texts()
    check(len(cards) == 3, f"{cards}")
    for card, wanted in zip(cards, (
            ("82 of 100 guessed tokens are right, and 55 of 100 are enough with 2 answers in a step", "41 tokens/s where there would be 24 (+71 %)",
             "alpha 0.82 is above break-even 0.55 at batch 2 (answers in a step)", "with guesses 72 %"),
            ("48 of 100 guessed tokens would be right. With 16 answers in a step 71 of 100 must be, or checking them takes more time than they save",
             "alpha 0.48 is below break-even 0.71 at batch 16 (answers in a step)", "rule of thumb is 0.6", "would not pay 85 %"),
            ("Prompts are computed in the same steps, and beside them nothing is guessed", "beside prompts 70 %"))):
        for words in wanted:
            check(words in " ".join(card.split()), f"{words!r} is not in {card!r}")
    explained = page.inner_text("#guesses .lead")
    check(all(w in explained for w in ("with alpha 0.48, 48 of 100", "Break-even is the alpha from which", "Batch is the number of answers")), explained)
    spoken = page.locator("#guess-cards .chart svg").first.get_attribute("aria-label")
    check(spoken.startswith("alpha 0.82 now, 0.55 needed"), spoken)
    positions = page.locator("#guess-cards .positions").nth(1).get_attribute("aria-label")
    check("token 1: 82\u00a0%" in positions, positions)
    page.click("#guesses summary")
    table = page.inner_text("#guess-rows")
    check("decode-2" in table and "small-coder" in table, table)
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            page.set_viewport_size({"width": width, "height": WIDTHS[width]})
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(2500)
            page.screenshot(path=os.path.join(ARTIFACTS, f"guesses-{width}-{scheme}.png"), full_page=True, timeout=PATIENCE)
            wide = page.evaluate("document.documentElement.scrollWidth")
            check(wide <= width, f"guesses at {width} px are {wide} px wide")
    page.close()


def key(browser):
    """The page asks for a key where the router does, sends it, and writes it nowhere."""
    page = browser.page(expect="401")
    page.route("**/cluster", lambda route: route.continue_() if route.request.headers.get("authorization") == "Bearer sesame"
               else route.fulfill(status=401, json={"error": {"message": "an API key is missing"}}))
    page.reload()
    page.wait_for_selector("#key-form", state="visible")
    check(page.inner_text("#state") == "asks for a key" and "Not known" in page.inner_text("#alert-list"), "nothing is claimed without data")
    page.screenshot(path=os.path.join(ARTIFACTS, "key-1280-light.png"), timeout=PATIENCE)
    page.fill("#key", "sesame")
    page.keyboard.press("Enter")
    wait_text(page, "#state", "ready")
    check(page.is_hidden("#key-form"), "the form has gone")
    kept = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])")
    check("sesame" not in kept and "sesame" not in page.content(), kept)
    page.close()


def test():
    from playwright.sync_api import sync_playwright
    os.makedirs(ARTIFACTS, exist_ok=True)
    with Cluster(1, 1, decode_set=["engine.max_sequences=3"]) as cluster, sync_playwright() as playwright:
        browser = Browser(playwright, cluster)

        def run(part, *arguments):
            began = time.monotonic()
            part(browser, *arguments)
            check(not browser.wrong, f"{part.__name__}: {browser.wrong}")
            print(f"{part.__name__} is right ({time.monotonic() - began:.1f} s)", flush=True)
        run(idle, cluster)
        run(box, cluster)
        load = Load(cluster, 2)
        time.sleep(15)
        run(under_load, cluster)
        load.stop()
        run(bottleneck, cluster)
        run(guessed, cluster)
        run(foreign_text)
        run(many_workers)
        run(key)
        run(dead_worker, cluster)
        browser.chromium.close()
        cluster.check_idle()
    print("screenshots in " + ARTIFACTS)


need_model()
if not shutil.which("chromium"):
    skip("chromium is not installed; tests/run --tag browser installs it")
pypi.run_with("browser", ["playwright==1.65.2"], skip)
main(test)
