'use strict';
// Everything from the cluster or the model is set as text, never as markup.
const get = id => document.getElementById(id);
let model = '';
let running = null;

function cell(row, text, bad) {
  const c = row.insertCell();
  c.textContent = text;
  if (bad) c.className = 'bad';
  return c;
}

function pagesCell(row, w) {
  const c = cell(row, '');
  const used = Math.max(0, w.pages - w.pages_free);
  const meter = document.createElement('meter');
  meter.max = w.pages || 1;
  meter.value = used;
  c.append(meter, ` ${used} of ${w.pages}`);
}

function show(state) {
  model = state.model;
  get('summary').textContent = `${state.model} · ${state.ready ? 'ready' : 'not ready: ' + state.not_ready_reason} · ` +
    `${state.requests_running} running, ${state.requests_waiting} waiting · up ${Math.round(state.uptime_s)} s · ${state.version}`;
  const body = document.createElement('tbody');
  body.id = 'workers';
  const order = (a, b) => a.role < b.role ? 1 : a.role > b.role ? -1 : a.name < b.name ? -1 : 1;
  for (const w of state.workers.sort(order)) {
    const row = body.insertRow();
    cell(row, w.name);
    cell(row, w.role);
    cell(row, w.state, w.state !== 'alive');
    cell(row, `${w.sequences_running} of ${w.credits_sequences}`);
    cell(row, w.sequences_waiting);
    pagesCell(row, w);
    cell(row, w.step_ms.toFixed(1));
    cell(row, w.prefill_tokens);
    cell(row, w.decode_tokens);
    cell(row, w.handoff_bytes ? `${(w.handoff_bytes / 1e6).toFixed(1)} MB ${w.transport}` : '');
  }
  get('workers').replaceWith(body);
}

async function refresh() {
  try {
    const answer = await fetch('/cluster', { cache: 'no-store' });
    show(await answer.json());
  } catch (e) {
    get('summary').textContent = 'the router does not answer';
  }
  setTimeout(refresh, document.hidden ? 5000 : 1000);
}

// Events of a streamed answer; yields the decoded JSON of each.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf('\n\n')) >= 0) {
      const line = rest.slice(0, end);
      rest = rest.slice(end + 2);
      if (line.startsWith('data: ') && line !== 'data: [DONE]') yield JSON.parse(line.slice(6));
    }
  }
}

async function explain(id) {
  const answer = await fetch('/requests/' + encodeURIComponent(id));
  if (!answer.ok) return;
  const line = await answer.json();
  const times = Object.entries(line.times_ms).filter(([, ms]) => ms !== null)
    .sort((a, b) => a[1] - b[1]).map(([name, ms]) => `${name.replace('_', ' ')} ${ms.toFixed(1)}`);
  get('times').textContent = `${line.prompt_tokens} + ${line.completion_tokens} tokens · ms: ` + times.join(' · ');
}

async function ask() {
  const out = get('answer');
  out.textContent = '';
  get('times').textContent = '';
  running = new AbortController();
  const response = await fetch('/v1/chat/completions', {
    method: 'POST', signal: running.signal, headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({
      model, stream: true, temperature: Number(get('temperature').value), max_tokens: Number(get('max-tokens').value),
      messages: [{ role: 'user', content: get('prompt').value }],
    }),
  });
  if (!response.ok) {
    out.textContent = (await response.json()).error.message;
    return;
  }
  let id = '';
  for await (const event of events(response)) {
    if (event.error) {
      out.textContent += '\n[' + event.error.message + ']';
      return;
    }
    id = event.id;
    for (const choice of event.choices) out.textContent += choice.delta.content || '';
  }
  await explain(id);
}

get('try').addEventListener('submit', async e => {
  e.preventDefault();
  get('send').disabled = true;
  get('stop').disabled = false;
  try {
    await ask();
  } catch (error) {
    if (error.name !== 'AbortError') get('answer').textContent += '\n[' + error.message + ']';
  }
  get('send').disabled = false;
  get('stop').disabled = true;
});
get('stop').addEventListener('click', () => running && running.abort());
refresh();
