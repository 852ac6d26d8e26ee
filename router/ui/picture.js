// The cluster as the README draws it: clients, router, prefill workers, decode workers, and what flows between them.
// One lane for each model. Beside each other where there is room, below each other on a phone.
import { get, svg, say, count, rate, time, bytes, plural, long } from './dom.js';

const CARD = { width: 168, height: 66, gap: 8 };
const MANY = 8; // workers of one role and model from which they are drawn as tiles
const TILE = 22;
const MARKS = { alive: '●', suspect: '◐', joining: '○', unhealthy: '▲', draining: '◇', cordoned: '◇', gone: '✕' };

const text = (x, y, words, name, anchor) => svg('text', { x, y, class: name, 'text-anchor': anchor }, words);

function cut(words, width) {
  const fits = Math.floor(width / 7.5);
  return words.length > fits ? words.slice(0, fits - 1) + '…' : words;
}

export const held = w => w.pages - w.pages_free;

// ---- one worker ---------------------------------------------------------------------------------

function does(w) {
  if (w.state === 'gone') return w.said_goodbye ? `left ${long(w.ago_s)} ago` : `died ${long(w.ago_s)} ago`;
  const what = w.role === 'decode' ? plural(w.sequences_running, 'answer') : plural(w.sequences_running, 'prompt');
  const waits = w.sequences_waiting ? ` · ${count(w.sequences_waiting)} waiting` : '';
  return what + waits;
}

function saying(w) {
  const pages = w.state === 'gone' ? '' : `, ${count(held(w))} of ${count(w.pages)} pages held`;
  return `${w.name}: ${w.state}, ${does(w)}${pages}`;
}

function card(w, x, y, width) {
  const g = svg('g', { class: `card ${w.role} ${w.state}` }, svg('title', {}, saying(w)));
  const inside = width - 20;
  g.append(svg('rect', { x: x + .5, y: y + .5, width: width - 1, height: CARD.height - 1, rx: 6, class: 'box' }));
  g.append(text(x + 10, y + 19, cut(w.name, inside - 14), 'name'));
  g.append(text(x + width - 10, y + 19, MARKS[w.state] || '?', 'mark', 'end'));
  if (w.state === 'gone') {
    g.append(text(x + 10, y + 43, does(w), 'small'));
    return g;
  }
  const share = w.pages ? held(w) / w.pages : 0;
  g.append(svg('rect', { x: x + 10, y: y + 28, width: inside, height: 6, rx: 3, class: 'rail' }));
  if (share > 0) g.append(svg('rect', { x: x + 10, y: y + 28, width: Math.max(3, inside * share), height: 6, rx: 3, class: 'level' }));
  const state = w.state === 'alive' ? does(w) : w.state;
  g.append(text(x + 10, y + 53, cut(state, inside - 50), 'small'));
  g.append(text(x + width - 10, y + 53, `${Math.round(share * 100)} %`, 'small figure', 'end'));
  return g;
}

// Many workers: a square each, filled as far as its pages are held.
function tile(w, x, y) {
  const size = TILE - 4;
  const full = w.state === 'gone' || !w.pages ? 0 : size * held(w) / w.pages;
  const g = svg('g', { class: `card ${w.role} ${w.state}` }, svg('title', {}, saying(w)));
  g.append(svg('rect', { x: x + .5, y: y + .5, width: size, height: size, rx: 3, class: 'box' }));
  if (full > 0) g.append(svg('rect', { x: x + .5, y: y + .5 + size - full, width: size, height: full, rx: Math.min(3, full / 2), class: 'level' }));
  if (w.state !== 'alive') g.append(text(x + size / 2 + .5, y + 13.5, MARKS[w.state] || '?', 'mark', 'middle'));
  return g;
}

// ---- the workers of one role ----------------------------------------------------------------------

function group(role, workers, x, y, width) {
  const g = svg('g', { class: 'group ' + role });
  const alive = workers.filter(w => w.state !== 'gone').length;
  g.append(text(x, y + 12, role, 'role'));
  g.append(text(x + width, y + 12, alive ? plural(alive, 'worker') : 'no worker', 'small', 'end'));
  const many = workers.length > MANY;
  const columns = many ? Math.floor((width + 4) / TILE) : Math.max(1, Math.floor((width + CARD.gap) / (CARD.width + CARD.gap)));
  const across = many ? TILE : (width + CARD.gap) / columns;
  const down = many ? TILE : CARD.height + CARD.gap;
  workers.forEach((w, i) => {
    const left = x + (i % columns) * across;
    const top = y + 22 + Math.floor(i / columns) * down;
    g.append(many ? tile(w, left, top) : card(w, left, top, across - CARD.gap));
  });
  if (!workers.length) {
    g.append(svg('rect', { x: x + .5, y: y + 22.5, width: width - 1, height: CARD.height - 1, rx: 6, class: 'box none' }));
    g.append(text(x + width / 2, y + 22 + CARD.height / 2 + 4, 'none has joined', 'small', 'middle'));
  }
  const rows = Math.max(1, Math.ceil(workers.length / columns));
  return { g, height: 22 + (workers.length ? rows * down - (many ? 4 : CARD.gap) : CARD.height) };
}

// ---- what flows ---------------------------------------------------------------------------------

// Thicker the more flows, in four steps, so that it does not tremble.
const thickness = share => 1.5 + Math.min(3, Math.ceil(Math.log2(1 + 7 * Math.min(1, share))));

function flow(path, name, share) {
  const idle = !(share > 0);
  return svg('path', { d: path, class: `flow ${name}${idle ? ' idle' : ''}`, 'stroke-width': idle ? 1.5 : thickness(share), 'marker-end': 'url(#arrow)' });
}

function flowWords(x, y, value, what, anchor = 'middle') {
  return svg('g', {}, text(x, y - 8, value, 'figure', anchor), text(x, y + 16, what, 'small', anchor));
}

function hub(x, y, width, height, name, lines) {
  const g = svg('g', { class: 'hub' }, svg('rect', { x: x + .5, y: y + .5, width: width - 1, height: height - 1, rx: 6, class: 'box' }));
  const top = y + height / 2 - (lines.length * 17) / 2;
  g.append(text(x + width / 2, top + 3, name, 'name', 'middle'));
  lines.forEach(([words, kind], i) => g.append(text(x + width / 2, top + 21 + i * 17, words, 'small ' + (kind || ''), 'middle')));
  return g;
}

const clientLines = s => [[plural(s.connections, 'connection')]];
const routerLines = s => [[`${count(s.requests_running)} running`], [`${count(s.requests_waiting)} waiting`, s.requests_waiting ? 'busy' : '']];

function laneTitle(lane, x, y, width) {
  return svg('g', {}, text(x, y + 12, cut(lane.name, width - 150), 'lane'),
    text(x + width, y + 12, `${count(lane.running)} running, ${count(lane.waiting)} waiting`, 'small', 'end'));
}

// Beside each other. The height.
function wide(out, state, lanes, flows, width) {
  const client = 96, toRouter = 84, router = 112, toPrefill = 104, handoff = 112;
  const each = (width - client - toRouter - router - toPrefill - handoff) / 2;
  const xRouter = client + toRouter, xPrefill = xRouter + router + toPrefill, xDecode = xPrefill + each + handoff;
  const titled = lanes.length > 1 ? 24 : 0;
  let y = 0;
  const drawn = [];
  for (const lane of lanes) {
    const p = group('prefill', lane.prefill, xPrefill, y + titled, each);
    const d = group('decode', lane.decode, xDecode, y + titled, each);
    if (titled) out.append(laneTitle(lane, xPrefill, y, width - xPrefill));
    out.append(p.g, d.g);
    const height = Math.max(p.height, d.height);
    drawn.push({ flows: lane.flows, middle: y + titled + 22 + CARD.height / 2, bottom: y + titled + height, back: y + titled + height + 26 });
    y += titled + height + 48;
  }
  const middle = drawn[0].middle, last = drawn[drawn.length - 1];
  const bottom = Math.max(last.bottom, middle + 36);
  last.back = Math.max(last.back, bottom + 26);
  out.append(hub(0, middle - 32, client, 64, 'clients', clientLines(state)));
  out.append(hub(xRouter, middle - 36, router, bottom - middle + 36, 'router', routerLines(state)));
  out.append(flow(`M${client + 4} ${middle}H${xRouter - 7}`, 'router', flows.requests));
  out.append(flowWords(client + toRouter / 2, middle, flows.words.requests, 'requests/s'));
  drawn.forEach(lane => {
    const xr = xRouter + router, m = lane.middle;
    const f = lane.flows;
    out.append(flow(`M${xr + 4} ${m}H${xPrefill - 7}`, 'prefill', f.prompts));
    out.append(flow(`M${xPrefill + each + 4} ${m}H${xDecode - 7}`, 'handoff', f.handoff));
    const home = lane === last ? `H${xRouter + router / 2}V${bottom + 7}` : `H${xr + 7}`;
    out.append(flow(`M${xDecode + each / 2} ${lane.bottom + 4}V${lane.back}${home}`, 'decode', f.tokens));
    out.append(flowWords(xr + toPrefill / 2, m, f.words.prompts, 'prompt tok/s'));
    out.append(flowWords(xPrefill + each + handoff / 2, m, f.words.handoff, 'KV pages'));
    out.append(text(xPrefill + each + handoff / 2, lane.back - 7, `${f.words.tokens} tok/s`, 'figure', 'middle'));
  });
  return last.back + 4;
}

// Below each other. The height.
function narrow(out, state, lanes, flows, width) {
  const half = (width - 96) / 2, several = lanes.length > 1, left = 18, inside = width - left - (several ? 16 : 0);
  out.append(hub(left, 0, half - 9, 58, 'clients', clientLines(state)));
  out.append(hub(width - half, 0, half, 74, 'router', routerLines(state)));
  out.append(flow(`M${left + half - 5} 29H${width - half - 7}`, 'router', flows.requests));
  out.append(flowWords(width / 2 + 5, 29, flows.words.requests, 'requests/s'));
  if (several) return narrowLanes(out, lanes, { left, inside, width, half });
  const gap = 44, x = width - half / 2, lane = lanes[0];
  let y = 74 + gap;
  out.append(flow(`M${x} 78V${y - 8}`, 'prefill', flows.prompts), text(x - 12, 78 + gap / 2, `${flows.words.prompts} prompt tok/s`, 'figure', 'end'));
  const p = group('prefill', lane.prefill, left, y, inside);
  y += p.height;
  out.append(p.g, flow(`M${width / 2} ${y + 4}V${y + gap - 8}`, 'handoff', flows.handoff), text(width / 2 + 12, y + gap / 2 + 4, `${flows.words.handoff} KV pages`, 'figure'));
  y += gap;
  const d = group('decode', lane.decode, left, y, inside);
  out.append(d.g, flow(`M${left - 3} ${y + 22 + CARD.height / 2}H6V82H${width - half + 12}V81`, 'decode', flows.tokens), text(left, 74 + gap / 2 + 10, `${flows.words.tokens} tok/s`, 'figure'));
  return y + d.height + 4;
}

// Prompts come down at the right edge and tokens go up at the left one, past the lanes between.
function narrowLanes(out, lanes, { left, inside, width, half }) {
  const edge = width - 5, gap = 34;
  let y = 96;
  for (const lane of lanes) {
    const f = lane.flows;
    out.append(laneTitle(lane, left, y, inside));
    y += 22;
    const p = group('prefill', lane.prefill, left, y, inside), middle = y + 22 + CARD.height / 2;
    out.append(p.g, text(left + inside / 2, y + 12, `${f.words.prompts} prompt tok/s`, 'figure', 'middle'));
    out.append(flow(`M${edge} 78V${middle}H${left + inside + 7}`, 'prefill', f.prompts));
    y += p.height;
    out.append(flow(`M${left + inside / 2} ${y + 4}V${y + gap - 8}`, 'handoff', f.handoff), text(left + inside / 2 + 12, y + gap / 2 + 4, `${f.words.handoff} KV pages`, 'figure'));
    y += gap;
    const d = group('decode', lane.decode, left, y, inside);
    out.append(d.g, text(left + inside / 2, y + 12, `${f.words.tokens} tok/s`, 'figure', 'middle'));
    out.append(flow(`M${left - 3} ${y + 22 + CARD.height / 2}H6V82H${width - half + 12}V81`, 'decode', f.tokens));
    y += d.height + 26;
  }
  return y - 22;
}

// ---- the whole ------------------------------------------------------------------------------------

// What flows, as shares of what flowed at most in the last minutes, and in words.
function flowsOf(now) {
  const share = name => (now.highest[name] > 0 ? now[name] / now.highest[name] : 0);
  return {
    requests: share('requests'), prompts: share('prompts'), handoff: share('handoff'), tokens: share('tokens'),
    words: { requests: rate(now.requests), prompts: rate(now.prompts), handoff: bytes(now.handoff) + '/s', tokens: rate(now.tokens) },
  };
}

// What each worker had computed at the last looks, and the most that flowed in each lane: rates of lanes come from these.
const LOOKS_MS = 10000;
let looks = []; // [{ at, state, workers: Map of incarnation }]
const most = {};

function look(state) {
  const at = performance.now();
  if (looks.length && looks[looks.length - 1].state === state) return; // drawn again
  looks = looks.filter(l => at - l.at < LOOKS_MS);
  looks.push({ at, state, workers: new Map(state.workers.map(w => [w.incarnation, w])) });
}

// Growth of a counter in a second, since the oldest look that knew the worker.
function growth(w, counter) {
  const now = looks[looks.length - 1], then = looks.find(l => l.workers.has(w.incarnation));
  return then && now.at > then.at ? Math.max(0, (w[counter] - then.workers.get(w.incarnation)[counter]) * 1000 / (now.at - then.at)) : 0;
}

function flowsOfLane(lane, state) {
  const mine = state.workers.filter(w => w.model === lane.name);
  const sum = (counter, role) => mine.reduce((n, w) => n + (!role || w.role === role ? growth(w, counter) : 0), 0);
  const found = { prompts: sum('prefill_tokens'), handoff: sum('handoff_bytes', 'prefill'), tokens: sum('decode_tokens') };
  const share = name => {
    const key = `${lane.name} ${name}`;
    most[key] = Math.max(most[key] || 0, found[name]);
    return most[key] > 0 ? found[name] / most[key] : 0;
  };
  return {
    prompts: share('prompts'), handoff: share('handoff'), tokens: share('tokens'),
    words: { prompts: rate(found.prompts), handoff: bytes(found.handoff) + '/s', tokens: rate(found.tokens) },
  };
}

const byName = (a, b) => a.name.localeCompare(b.name, 'en', { numeric: true });

function lanesOf(state) {
  const gone = state.departed.filter(d => d.ago_s < 120).map(d => ({ ...d, state: 'gone' }));
  return state.models.map(model => {
    const of = role => [...state.workers.filter(w => w.model === model.name && w.role === role).sort(byName), ...gone.filter(w => w.model === model.name && w.role === role)];
    return { name: model.name, running: model.requests_running, waiting: model.requests_waiting, prefill: of('prefill'), decode: of('decode') };
  });
}

function inWords(state, now) {
  const count = role => state.workers.filter(w => w.role === role).length;
  return `${plural(count('prefill'), 'prefill worker')} and ${plural(count('decode'), 'decode worker')}; ` +
    `${plural(state.requests_running, 'request')} running, ${state.requests_waiting} waiting; ` +
    `${rate(now.tokens)} tokens and ${bytes(now.handoff)} of pages a second.`;
}

export function show(state, now) {
  const out = get('picture');
  look(state);
  const width = Math.max(300, Math.floor(out.parentElement.clientWidth - 2 * parseFloat(getComputedStyle(out.parentElement).paddingLeft)));
  const arrow = svg('marker', { id: 'arrow', viewBox: '0 0 8 8', refX: 2, refY: 4, markerWidth: 8, markerHeight: 8, orient: 'auto', markerUnits: 'userSpaceOnUse' },
    svg('path', { d: 'M0 0L8 4L0 8z', fill: 'context-stroke' }));
  const drawn = svg('g', {});
  const lanes = lanesOf(state), flows = flowsOf(now);
  for (const lane of lanes) lane.flows = lanes.length > 1 ? flowsOfLane(lane, state) : flows;
  const height = (width >= 860 ? wide : narrow)(drawn, state, lanes, flows, width);
  out.setAttribute('viewBox', `0 0 ${width} ${Math.ceil(height)}`);
  out.setAttribute('width', width);
  out.setAttribute('height', Math.ceil(height));
  out.replaceChildren(svg('defs', {}, arrow), drawn);
  say(get('picture-says'), inWords(state, now));
}

// ---- the same as a table ----------------------------------------------------------------------------

export function table(state) {
  const body = get('workers');
  const order = [...state.workers].sort((a, b) => b.role.localeCompare(a.role) || byName(a, b));
  while (body.rows.length > order.length) body.deleteRow(-1);
  order.forEach((w, i) => {
    const row = body.rows[i] || body.insertRow();
    const cells = [w.name, w.role, w.model, w.state, `${count(w.sequences_running)} of ${count(w.credits_sequences)}`, count(w.sequences_waiting),
      `${count(held(w))} of ${count(w.pages)}`, time(w.step_ms), count(w.prefill_tokens + w.decode_tokens), count(w.cached_tokens),
      bytes(w.handoff_bytes), w.transport || '–'];
    cells.forEach((words, k) => {
      const cell = row.cells[k] || row.insertCell();
      say(cell, words);
      cell.className = (k >= 4 && k <= 10 ? 'number' : '') + (k === 3 && w.state !== 'alive' ? ' bad' : '');
    });
  });
}
