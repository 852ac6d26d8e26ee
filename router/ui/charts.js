// The last minutes as small charts, from the samples of /trend, and the same as a table.
import { get, html, svg, say, count, rate, time, bytes } from './dom.js';
import { json } from './api.js';

const HEIGHT = 118, TOP = 8, BOTTOM = 18, LEFT = 4, RIGHT = 52;
const perSecond = n => rate(n) + '/s';
const few = n => (n < 10 ? String(+n.toPrecision(2)) : count(n));

// Each: what it shows, which columns, how a value is told, and at the grid where that is shorter. `high`: bars up to this column.
const CHARTS = [
  { title: 'Time to first token', name: 'prefill', value: 'first_token_p50_ms', high: 'first_token_p95_ms', words: time },
  { title: 'Time per output token', name: 'decode', value: 'token_p50_ms', high: 'token_p95_ms', words: time },
  { title: 'Output tokens', name: 'decode', value: 'generated_tokens_per_s', words: perSecond, tick: few, area: true },
  { title: 'Prompt tokens', name: 'prefill', value: 'prompt_tokens_per_s', words: perSecond, tick: few, area: true },
  { title: 'Hand-off', name: 'handoff', value: 'handoff_bytes_per_s', words: n => bytes(n) + '/s', tick: bytes, area: true },
  { title: 'Requests running', name: 'router', value: 'running', second: 'waiting', secondTitle: 'waiting', words: count, whole: true, area: true },
];

let columns = {};
let samples = []; // oldest first
let next = 0;
let interval = 2;
let look = null; // how many samples ago the reader looks at; null: now
const drawn = [];

export async function refresh() {
  const trend = await json(next ? '/trend/' + next : '/trend');
  if (next && trend.next < next) { // another router process
    samples = [];
    next = 0;
    return;
  }
  interval = trend.interval_s;
  columns = Object.fromEntries(trend.columns.map((name, i) => [name, i]));
  samples = samples.concat(trend.samples).slice(-Math.round(600 / interval));
  next = trend.next;
}

const column = (name, from) => samples.slice(from).map(s => s[columns[name]]);
const mean = list => (list.length ? list.reduce((a, b) => a + b, 0) / list.length : 0);

// What the tiles and the picture show: means of the last ten seconds, latencies of the last minute.
export function now() {
  const few = name => (samples.length ? mean(column(name, -Math.round(10 / interval))) : 0);
  const most = name => Math.max(0, ...column(name, 0));
  const median = name => {
    const list = column(name, -Math.round(60 / interval)).filter(v => v !== null).sort((a, b) => a - b);
    return list.length ? list[Math.floor((list.length - 1) / 2)] : null;
  };
  const highest = name => {
    const list = column(name, -Math.round(60 / interval)).filter(v => v !== null);
    return list.length ? Math.max(...list) : null;
  };
  return {
    requests: few('finished') / interval, prompts: few('prompt_tokens_per_s'), tokens: few('generated_tokens_per_s'), handoff: few('handoff_bytes_per_s'),
    first: median('first_token_p50_ms'), firstHigh: highest('first_token_p95_ms'),
    token: median('token_p50_ms'), tokenHigh: highest('token_p95_ms'),
    highest: {
      requests: most('finished') / interval, prompts: most('prompt_tokens_per_s'), tokens: most('generated_tokens_per_s'), handoff: most('handoff_bytes_per_s'),
    },
  };
}

// ---- drawing ------------------------------------------------------------------------------------

// The least of 2, 5 and 10 minutes that shows all there is.
const span = () => [120, 300, 600].find(s => s >= samples.length * interval) || 600;

// A round number at the top; half of it stands in the middle.
function nice(highest, whole) {
  if (whole && highest <= 10) return Math.max(2, 2 * Math.ceil(highest / 2));
  if (!(highest > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(highest));
  return (whole ? [1, 2, 4, 6, 8, 10] : [1, 1.5, 2, 3, 4, 5, 6, 8, 10]).map(n => n * power).find(n => n >= highest);
}

function make(spec) {
  const picture = svg('svg', { role: 'img', tabindex: 0, height: HEIGHT });
  const shown = html('output', { class: 'shown' }, html('span', { class: 'median' }), html('span', { class: 'high' }));
  const figure = html('figure', { class: 'chart ' + spec.name }, html('figcaption', {}, html('span', {}, spec.title), shown), picture);
  picture.addEventListener('pointermove', event => {
    const box = picture.getBoundingClientRect();
    const plot = box.width - LEFT - RIGHT;
    lookAt(Math.round((plot - (event.clientX - box.left - LEFT)) / plot * span() / interval));
  });
  picture.addEventListener('pointerleave', () => lookAt(null));
  picture.addEventListener('blur', () => lookAt(null));
  picture.addEventListener('keydown', event => {
    const step = { ArrowLeft: 1, ArrowRight: -1, PageUp: 15, PageDown: -15 }[event.key];
    if (!step) return;
    event.preventDefault();
    lookAt((look ?? 0) + step);
  });
  return { spec, figure, picture, shown };
}

function lookAt(ago) {
  look = ago === null ? null : Math.min(Math.max(ago, 0), samples.length - 1);
  show();
}

// Lines between neighbours, where no more than ten seconds lie between them; lone ones are dots.
function line(points, gap) {
  let path = '';
  const lone = [];
  points.forEach((p, i) => {
    const before = i > 0 && p.x - points[i - 1].x <= gap, after = i + 1 < points.length && points[i + 1].x - p.x <= gap;
    path += `${before ? 'L' : 'M'}${p.x.toFixed(1)} ${p.y.toFixed(1)}`;
    if (!before && !after) lone.push(p);
  });
  return { path, lone };
}

function grid(out, width, scale, words) {
  const plot = HEIGHT - TOP - BOTTOM;
  for (const share of [0, .5, 1]) {
    const y = Math.round(TOP + plot * (1 - share)) + .5;
    out.append(svg('line', { x1: LEFT, x2: width - RIGHT, y1: y, y2: y, class: share ? 'grid' : 'axis' }));
    if (share) out.append(svg('text', { x: width - RIGHT + 5, y: y + 4, class: 'tick' }, words(scale * share)));
  }
  out.append(svg('text', { x: LEFT, y: HEIGHT - 4, class: 'tick' }, `−${span() / 60} min`));
  out.append(svg('text', { x: width - RIGHT, y: HEIGHT - 4, class: 'tick', 'text-anchor': 'end' }, 'now'));
}

function draw({ spec, figure, picture, shown }) {
  const width = Math.max(180, Math.floor(figure.clientWidth));
  const plot = HEIGHT - TOP - BOTTOM, step = (width - LEFT - RIGHT) / (span() / interval);
  const highest = Math.max(0, ...[spec.value, spec.high, spec.second].filter(Boolean).flatMap(name => column(name, 0)));
  const scale = nice(highest, spec.whole);
  const x = i => width - RIGHT - (samples.length - 1 - i) * step;
  const y = v => TOP + plot * (1 - v / scale);
  const points = name => samples.map((s, i) => ({ i, v: s[columns[name]] })).filter(p => p.v !== null && p.v !== undefined).map(p => ({ ...p, x: x(p.i), y: y(p.v) }));
  const out = svg('g', {});
  grid(out, width, scale, highest > 0 ? spec.tick || spec.words : () => ''); // an empty chart has no scale
  const values = points(spec.value);
  if (spec.high)
    for (const p of values)
      out.append(svg('line', { x1: p.x, x2: p.x, y1: p.y, y2: y(samples[p.i][columns[spec.high]]), class: 'range', 'stroke-width': Math.max(1.5, Math.min(4, step * .7)) }));
  if (spec.area && values.length > 1)
    out.append(svg('path', { d: `M${values[0].x} ${y(0)}` + values.map(p => `L${p.x.toFixed(1)} ${p.y.toFixed(1)}`).join('') + `L${values[values.length - 1].x} ${y(0)}Z`, class: 'area' }));
  const { path, lone } = line(values, step * 10 / interval + .1);
  if (path) out.append(svg('path', { d: path, class: 'value' }));
  for (const p of lone) out.append(svg('circle', { cx: p.x, cy: p.y, r: 2, class: 'dot' }));
  if (spec.second) out.append(svg('path', { d: line(points(spec.second), 1e9).path, class: 'second' }));
  if (look !== null) out.append(svg('line', { x1: x(samples.length - 1 - look), x2: x(samples.length - 1 - look), y1: TOP, y2: HEIGHT - BOTTOM, class: 'look' }));
  picture.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
  picture.setAttribute('width', width);
  picture.replaceChildren(out);
  tell({ spec, picture, shown });
}

function valueWords(spec, sample) {
  const value = sample[columns[spec.value]];
  if (value === null) return 'none';
  return spec.words(value) + (spec.second ? ` · ${spec.words(sample[columns[spec.second]])} ${spec.secondTitle}` : '');
}

const highWords = (spec, sample) => (spec.high && sample[columns[spec.value]] !== null ? ` · 95 %: ${spec.words(sample[columns[spec.high]])}` : '');

// The value that is looked at, or else the last one there is.
function tell({ spec, picture, shown }) {
  const at = look === null ? samples.findLastIndex(s => s[columns[spec.value]] !== null) : samples.length - 1 - look;
  const ago = at < 0 ? '' : look === null ? '' : `${(samples.length - 1 - at) * interval} s ago: `;
  say(shown.firstChild, at < 0 ? 'none yet' : ago + valueWords(spec, samples[at]));
  say(shown.lastChild, at < 0 ? '' : highWords(spec, samples[at]));
  picture.setAttribute('aria-label', `${spec.title}, last ${span() / 60} minutes: ${at < 0 ? 'none yet' : valueWords(spec, samples[at]) + highWords(spec, samples[at])}. Arrow keys look back.`);
}

// ---- the whole ------------------------------------------------------------------------------------

export function show() {
  if (!drawn.length) {
    drawn.push(...CHARTS.map(make));
    get('charts').append(...drawn.map(d => d.figure));
    get('minutes-head').append(html('tr', {}, html('th', { scope: 'col' }, 'Minutes ago'), ...CHARTS.map(c => html('th', { scope: 'col', class: 'number' }, c.title))));
  }
  drawn.forEach(draw);
  table();
}

// Means of each minute; of the latencies of those samples that have one.
function table() {
  const perMinute = Math.round(60 / interval);
  const minutes = Math.ceil(samples.length / perMinute);
  const body = get('minutes');
  while (body.rows.length > minutes) body.deleteRow(-1);
  for (let m = 0; m < minutes; m++) {
    const row = body.rows[m] || body.insertRow();
    const part = samples.slice(Math.max(0, samples.length - (m + 1) * perMinute), samples.length - m * perMinute);
    const cells = [`${m} to ${m + 1}`, ...CHARTS.map(c => {
      const list = part.map(s => s[columns[c.value]]).filter(v => v !== null);
      return list.length ? c.words(mean(list)) : '–';
    })];
    cells.forEach((words, i) => {
      const cell = row.cells[i] || row.insertCell();
      say(cell, words);
      cell.className = i ? 'number' : '';
    });
  }
}
