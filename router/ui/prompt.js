// The box to try a prompt: the answer streams in, and can be stopped.
import { get, say, count, time } from './dom.js';
import { ask, events, json } from './api.js';
import { bar, inWords } from './requests.js';

let running = null; // AbortController

// What is told beneath the answer while it comes.
class Progress {
  constructor() {
    this.begun = performance.now();
    this.first = null;
    this.tokens = 0;
  }

  more() {
    this.tokens++;
    if (this.first === null) this.first = performance.now();
  }

  toString() {
    if (this.first === null) return `waiting for the first token, ${time(performance.now() - this.begun)}`;
    const s = (this.last - this.first) / 1000;
    const speed = this.tokens > 1 && s > 0 ? ` · ${((this.tokens - 1) / s).toFixed(1)} tokens/s` : '';
    return `${count(this.tokens)} token${this.tokens === 1 ? '' : 's'}${speed} · first token after ${time(this.first - this.begun)}`;
  }
}

async function explain(id) {
  if (!id) return;
  const request = await json('/requests/' + encodeURIComponent(id)).catch(() => null);
  if (!request) return;
  get('answer-line').replaceChildren(bar(request, Math.max(1, request.times_ms.done ?? request.age_ms)));
  get('answer-line').title = inWords(request);
}

function body() {
  return JSON.stringify({
    model: get('model-choice').value, stream: true, stream_options: { include_usage: true },
    temperature: Number(get('temperature').value), max_tokens: Number(get('max-tokens').value),
    messages: [{ role: 'user', content: get('message').value }],
  });
}

// The text grows at its end; follow it unless the reader has scrolled up.
function append(out, text) {
  const follow = out.scrollTop + out.clientHeight >= out.scrollHeight - 8;
  out.append(text);
  if (follow) out.scrollTop = out.scrollHeight;
}

async function stream(out, progress) {
  const answer = await ask('/v1/chat/completions', {
    method: 'POST', signal: running.signal, headers: { 'Content-Type': 'application/json' }, body: body(),
  });
  if (!answer.ok) {
    const told = await answer.json().catch(() => null);
    throw new Error(told && told.error ? told.error.message : `the router answered ${answer.status}`);
  }
  let finish = '';
  for await (const event of events(answer)) {
    if (event.error) throw new Error(event.error.message);
    progress.id = event.id;
    for (const choice of event.choices) {
      const text = choice.delta.content || choice.delta.reasoning_content;
      if (text) {
        progress.more();
        progress.last = performance.now();
        append(out, text);
      }
      finish = choice.finish_reason || finish;
    }
    if (event.usage) progress.tokens = event.usage.completion_tokens;
    say(get('told'), String(progress));
  }
  return finish === 'length' ? 'cut at the limit' : 'complete';
}

async function send() {
  const out = get('answer');
  const progress = new Progress();
  running = new AbortController();
  out.replaceChildren();
  out.setAttribute('aria-busy', 'true'); // it is spoken when it is whole
  get('told').setAttribute('aria-live', 'off'); // it changes with every token
  get('answer-line').replaceChildren();
  get('send').disabled = true;
  get('stop').disabled = false;
  let end;
  try {
    end = await stream(out, progress);
  } catch (error) {
    end = running.signal.aborted ? 'stopped' : 'failed: ' + error.message;
  }
  running = null;
  out.setAttribute('aria-busy', 'false');
  if (document.activeElement === get('stop')) get('message').focus();
  get('send').disabled = false;
  get('stop').disabled = true;
  get('told').setAttribute('aria-live', 'polite');
  say(get('told'), progress.first === null ? end : `${end} · ${progress}`);
  await explain(progress.id);
}

export function models(names) {
  const choice = get('model-choice');
  if (choice.dataset.names === names.join('\n')) return;
  choice.dataset.names = names.join('\n');
  const chosen = choice.value;
  choice.replaceChildren(...names.map(name => new Option(name, name, false, name === chosen)));
  get('model-label').hidden = names.length < 2;
}

get('ask').addEventListener('submit', event => {
  event.preventDefault();
  if (!running) send();
});
get('stop').addEventListener('click', () => running && running.abort());
document.addEventListener('keydown', event => {
  if (event.key === 'Escape' && running) running.abort();
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && event.target === get('message')) get('ask').requestSubmit();
});
