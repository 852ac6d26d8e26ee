// The recent requests, each with its time line as a bar.
import { get, html, svg, say, bytes, count, time, long } from './dom.js';

// Parts of a time line, and when each begins (times_ms). A worker that does not tell its first step is taken to have begun
// with the hand-over, or with the first token.
const PARTS = [
  ['queue', 'waits', t => t.arrived],
  ['prefill', 'prefill', t => t.prefill_begun],
  ['handoff', 'hand-off', (t, r) => (r.prefill_worker ? t.prefill_done : null)],
  ['decode', 'answer', (t, r) => t.first_step ?? (r.prefill_worker ? t.handed_over : t.first_token)],
];
const FEW = 12;
let all = false;
const rows = new Map();

// [name, from, to] in ms, without what did not happen.
export function parts(request) {
  const t = request.times_ms;
  const end = t.done ?? request.age_ms;
  const found = [];
  let from = 0;
  let name = 'queue';
  for (const [next, , begins] of PARTS.slice(1)) {
    const stamp = begins(t, request);
    if (stamp === null) continue;
    const at = Math.min(Math.max(stamp, from), end);
    found.push([name, from, at]);
    from = at;
    name = next;
  }
  found.push([name, from, end]);
  return found.filter(([, a, b]) => b > a);
}

const WORDS = Object.fromEntries(PARTS.map(([name, word]) => [name, word]));

export function inWords(request) {
  const told = parts(request).map(([name, from, to]) => `${WORDS[name]} ${time(to - from)}`);
  if (request.times_ms.first_token !== null) told.push(`first token after ${time(request.times_ms.first_token)}`);
  return told.join(', ');
}

// `scale` is the time that the whole width stands for.
export function bar(request, scale) {
  const made = svg('svg', { class: 'bar', viewBox: '0 0 1000 10', preserveAspectRatio: 'none', role: 'img', 'aria-label': inWords(request) });
  const x = ms => 1000 * Math.min(1, ms / scale);
  for (const [name, from, to] of parts(request))
    made.append(svg('rect', { class: 'part ' + name, x: x(from), y: 1, width: Math.max(x(to) - x(from), 2), height: 8 }));
  const first = request.times_ms.first_token;
  if (first !== null) made.append(svg('rect', { class: 'first', x: Math.max(0, x(first) - 1.5), y: 0, width: 3, height: 10 }));
  made.append(svg('title', {}, inWords(request)));
  return made;
}

const total = r => r.times_ms.done ?? r.age_ms;

function workers(r) {
  if (!r.decode_worker) return '–';
  return r.prefill_worker ? `${r.prefill_worker} → ${r.decode_worker}` : r.decode_worker;
}

function make(r, severalModels) {
  const opener = html('button', { type: 'button', class: 'id', 'aria-expanded': 'false', 'aria-label': `Request ${r.id}, what it did when` }, r.id.slice(-8));
  const row = html('tr', {}, ...['when', 'id', 'outcome', 'number prompt', 'number tokens', 'workers', 'number first-token', 'number total', 'line'].map(
    name => html('td', { class: name })));
  const told = html('p', { class: 'detail', hidden: true });
  opener.addEventListener('click', () => {
    told.hidden = !told.hidden;
    opener.setAttribute('aria-expanded', String(!told.hidden));
  });
  row.cells[1].append(opener);
  row.cells[3].append(html('span'), html('span', { class: 'cached' }));
  row.cells[8].append(html('div'), told);
  if (severalModels && r.model) row.cells[1].append(html('small', {}, r.model));
  return row;
}

function update(row, r, scale) {
  const c = row.cells;
  say(c[0], r.age_ms < 1500 ? 'now' : long(r.age_ms / 1000) + ' ago');
  const outcome = r.outcome === 'running' && !r.decode_worker ? 'waiting' : r.outcome;
  say(c[2], outcome + (r.attempts > 1 ? ` (${r.attempts} attempts)` : ''));
  c[2].className = 'outcome ' + outcome;
  say(c[3].firstChild, r.prompt_tokens ? count(r.prompt_tokens) : '–');
  say(c[3].lastChild, r.cached_tokens ? ` (${count(r.cached_tokens)} cached)` : '');
  say(c[4], r.outcome === 'running' ? '…' : count(r.completion_tokens));
  say(c[5], workers(r));
  say(c[6], time(r.times_ms.first_token));
  say(c[7], time(total(r)));
  const drawn = `${scale} ${total(r)}`;
  if (row.dataset.drawn !== drawn) {
    row.dataset.drawn = drawn;
    c[8].firstChild.replaceChildren(bar(r, scale));
  }
  say(c[8].lastChild, `${r.id}: ${inWords(r)}${r.handed_over_bytes ? `, ${bytes(r.handed_over_bytes)} handed over` : ''}`);
}

export function legend() {
  get('legend').replaceChildren(...PARTS.map(([name, word]) => html('li', { class: name }, word)), html('li', { class: 'first' }, 'first token'));
}

// 1, 2 or 5 times a power of ten, so that the scale does not change with every request.
function round(ms) {
  const power = 10 ** Math.floor(Math.log10(Math.max(ms, 1)));
  return [1, 2, 5, 10].map(n => n * power).find(n => n >= ms);
}

export function show(list, severalModels) {
  const body = get('rows');
  const shown = all ? list : list.slice(0, FEW);
  const scale = round(Math.max(1, ...shown.map(total)));
  const ids = new Set(shown.map(r => r.id));
  for (const [id, row] of rows) if (!ids.has(id)) { row.remove(); rows.delete(id); }
  shown.forEach((r, i) => {
    let row = rows.get(r.id);
    if (!row) rows.set(r.id, row = make(r, severalModels));
    if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] || null);
    update(row, r, scale);
  });
  say(get('scale'), `Time line, 0 to ${time(scale)}`);
  get('no-requests').hidden = list.length > 0;
  get('more').hidden = list.length <= FEW;
}

get('more').addEventListener('click', () => {
  all = !all;
  get('more').setAttribute('aria-expanded', String(all));
  get('more').textContent = all ? 'Show fewer' : 'Show more';
});
