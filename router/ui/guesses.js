// Guessed tokens: for the answers of each model and class, whether guesses are on and why, in words, a chart of alpha against
// break-even, and what became of the answers' steps. Every worker's numbers are a table.
import { get, html, svg, say, count, rate, plural } from './dom.js';

const KEPT_S = 300; // of the charts; they begin when the page is opened
const SMOOTH = .2; // weight of a new value there: what is needed follows the number of answers, which trembles
const STATES = [ // as workers name them, and in words
  ['on', 'with guesses'], ['probing', 'tried again'], ['below_break_even', 'would not pay'], ['lost', 'paid too little of late'],
  ['limit', 'the step would take too long'], ['prompts', 'beside prompts'], ['no_guess', 'nothing to guess from'],
  ['measuring', 'being measured'], ['pages', 'no page left'],
];
const WORDS = Object.fromEntries(STATES);
const TEXTS = { ngram: 'the answer’s own text', suffix: 'recent answers' };

const percent = share => (share > 0 && share < .005 ? '<1\u00a0%' : `${Math.round(100 * share)}\u00a0%`);
const of100 = share => `${Math.round(100 * share)} of 100`;
const at = share => `${(100 * Math.min(1, Math.max(0, share))).toFixed(1)}%`; // of a bar's width
const alpha = share => share.toFixed(2);
const source = d => d.draft || TEXTS[d.name] || d.name;
const sum = (list, of) => list.reduce((n, x) => n + of(x), 0);

// ---- several workers as one ---------------------------------------------------------------------------

// Wilson's interval of 95 %.
function interval(share, n) {
  if (!(n > 0)) return [0, 1];
  const z = 1.96, spread = 1 + z * z / n;
  const middle = (share + z * z / (2 * n)) / spread, half = z * Math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / spread;
  return [Math.max(0, Math.min(share, middle - half)), Math.min(1, Math.max(share, middle + half))];
}

const positions = (list, name) => list.reduce((all, d) => d[name].map((n, i) => n + (all[i] || 0)).concat(all.slice(d[name].length)), []);

function drafterOf(list) {
  const outcomes = sum(list, d => d.outcomes), mean = name => sum(list, d => d[name]) / list.length;
  const share = outcomes > 0 ? sum(list, d => d.alpha * d.outcomes) / outcomes : 0;
  const [low, high] = list.length > 1 ? interval(share, outcomes) : [list[0].low, list[0].high];
  return {
    name: list[0].name, draft: list[0].draft, outcomes, alpha: share, low, high, expected: mean('expected'), needed: mean('break_even'),
    right: sum(list, d => d.right), guessed: sum(list, d => d.right + d.wrong + d.behind), tried: positions(list, 'tried'), held: positions(list, 'held'),
  };
}

function groupBy(list, key) {
  const groups = new Map();
  for (const x of list) groups.set(key(x), [...(groups.get(key(x)) || []), x]);
  return [...groups.values()];
}

// Answers of one model and class, on the workers that have some.
function together(model, name, told) {
  const weights = told.map(t => t.of.tokens_per_s + 1e-9), weight = weights.reduce((a, b) => a + b, 0);
  const mean = of => told.reduce((n, t, i) => n + of(t) * weights[i], 0) / weight;
  const share = state => mean(t => (t.of.states.find(s => s.name === state) || { share: 0 }).share);
  const names = new Set([...STATES.map(s => s[0]), ...told.flatMap(t => t.of.states.map(s => s.name))]);
  const main = told[weights.indexOf(Math.max(...weights))];
  return {
    model, name, told, main, state: main.of.state, chip: main.of.sentence.split(/[: ]/)[0], sentence: main.of.sentence,
    alpha: main.of.alpha, needed: main.of.break_even, batch: main.worker.guesses.batch,
    states: [...names].map(n => ({ name: n, share: share(n) })).filter(s => s.share > 0),
    perStep: mean(t => t.of.tokens_per_step), tokens: sum(told, t => t.of.tokens_per_s), gained: sum(told, t => t.of.gained_per_s),
    drafters: groupBy(told.flatMap(t => t.of.drafters), d => d.name + d.draft).map(drafterOf),
  };
}

function groups(state) {
  const all = state.workers.flatMap(w => ((w.guesses && w.guesses.classes) || []).map(of => ({ worker: w, of })));
  return state.models.flatMap(m => ['interactive', 'batch'].map(name => [m.name, name, all.filter(t => t.worker.model === m.name && t.of.name === name)]))
    .filter(([, , told]) => told.length).map(g => together(...g));
}

// ---- in words --------------------------------------------------------------------------------------------

function whyOn(g) {
  const plain = g.tokens - g.gained, more = plain > 0 ? g.gained / plain : 0;
  const grows = `An answer grows by ${g.perStep.toFixed(1)} tokens a step instead of 1`;
  const speed = more > .005 ? `: ${rate(g.tokens)} tokens/s where there would be ${rate(plain)} (+${percent(more)}).` : '.';
  const right = `${of100(g.alpha)} guessed tokens are right`, answers = `with ${plural(g.batch, 'answer')} in a step`;
  return g.alpha >= g.needed ? `${right}, and ${of100(g.needed)} are enough ${answers}. ${grows}${speed}`
    : `${right}. ${answers.replace('w', 'W')} ${of100(g.needed)} would have to be if all were guessed for, so only the surest guesses are used. ${grows}${speed}`;
}

function whyBelow(g) {
  const again = ' Now and then a step tries whether that has changed.';
  if (g.needed >= 1) return `With ${plural(g.batch, 'answer')} in a step even a sure guess would not pay: making and checking it takes as long as the token itself.${again}`;
  const would = `About ${of100(g.alpha)} guessed tokens would be right. With ${plural(g.batch, 'answer')} in a step ${of100(g.needed)} must be`;
  return g.alpha < g.needed ? `${would}, or checking them takes more time than they save.${again}` : `${would} or more, which differs from answer to answer: at the moment it does not pay.${again}`;
}

// The same with the words that others use; '' where nothing is compared.
function inNumbers(g) {
  if (!(g.alpha > 0 && g.needed > 0 && (g.state === 'on' || g.state === 'below_break_even'))) return '';
  const batch = `at batch ${count(g.batch)} (answers in a step); the usual rule of thumb is 0.6`;
  if (g.needed >= 1) return `alpha ${alpha(g.alpha)}, and not even 1 would be enough ${batch}`;
  const where = alpha(g.alpha) === alpha(g.needed) ? 'about at' : g.alpha < g.needed ? 'below' : 'above';
  return `alpha ${alpha(g.alpha)} is ${where} break-even ${alpha(g.needed)} ${batch}`;
}

function plainly(g) {
  if (g.alpha > 0 && g.needed > 0 && g.state === 'on') return whyOn(g);
  return g.alpha > 0 && g.needed > 0 && g.state === 'below_break_even' ? whyBelow(g) : sentenceOf(g.sentence);
}

// "off: no page is left" without its beginning, as a sentence.
function sentenceOf(words) {
  const rest = words.slice(words.indexOf(': ') + 2);
  return rest.charAt(0).toUpperCase() + rest.slice(1) + '.';
}

// ---- drawing ---------------------------------------------------------------------------------------------

const history = new Map(); // of each card: [{ t, alpha, needed }]

function remember(key, g) {
  const now = performance.now() / 1000;
  const list = (history.get(key) || []).filter(p => now - p.t < KEPT_S);
  const last = list[list.length - 1], smooth = name => (last ? last[name] + (g[name] - last[name]) * SMOOTH : g[name]);
  if (g.alpha > 0 && g.needed > 0) list.push({ t: now, alpha: smooth('alpha'), needed: smooth('needed') });
  history.set(key, list);
  return list;
}

const HEIGHT = 84, TOP = 6, BOTTOM = 16, RIGHT = 34;

function path(points, value, x, y) {
  return points.map((p, i) => `${i ? 'L' : 'M'}${x(p).toFixed(1)} ${y(value(p)).toFixed(1)}`).join('');
}

// What guesses promise, against what they must.
function chart(picture, points, g) {
  const width = Math.max(180, Math.floor(picture.parentElement.clientWidth)), now = performance.now() / 1000;
  const span = [60, 120, 300].find(s => !points.length || s >= now - points[0].t) || 300;
  const x = p => (width - RIGHT) * (1 - (now - p.t) / span), y = v => TOP + (HEIGHT - TOP - BOTTOM) * (1 - v);
  const out = svg('g', {});
  for (const share of [0, .5, 1]) {
    out.append(svg('line', { x1: 0, x2: width - RIGHT, y1: Math.round(y(share)) + .5, y2: Math.round(y(share)) + .5, class: share ? 'grid' : 'axis' }));
    out.append(svg('text', { x: width - RIGHT + 5, y: y(share) + 4, class: 'tick' }, String(share)));
  }
  out.append(svg('text', { x: 0, y: HEIGHT - 3, class: 'tick' }, `−${span / 60} min`), svg('text', { x: width - RIGHT, y: HEIGHT - 3, class: 'tick', 'text-anchor': 'end' }, 'now'));
  if (points.length > 1) out.append(svg('path', { d: path(points, p => p.needed, x, y), class: 'second' }), svg('path', { d: path(points, p => p.alpha, x, y), class: 'value' }));
  picture.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
  picture.setAttribute('width', width);
  const above = points.length ? points.filter(p => p.alpha > p.needed).length / points.length : 0;
  picture.setAttribute('aria-label', points.length ? `alpha ${alpha(g.alpha)} now, ${alpha(g.needed)} needed; above that in ${percent(above)} of the time since the page was opened` : 'alpha: nothing yet');
  picture.replaceChildren(out);
}

function bar(d) {
  const words = `${percent(d.alpha)} right (${percent(d.low)} to ${percent(d.high)} with 95 % certainty), ${percent(d.needed)} needed`;
  const made = html('div', { class: 'chance', role: 'img', 'aria-label': words, title: words },
    html('span', { class: 'interval' }), html('span', { class: 'estimate' }), html('span', { class: 'needed' }));
  const [range, estimate, mark] = made.children;
  range.style.left = at(d.low);
  range.style.width = at(d.high - d.low);
  estimate.style.left = at(d.alpha);
  mark.style.left = at(d.needed);
  return made;
}

// A column for each position in the guess: how often its token was right.
function positionBars(d) {
  const shares = d.tried.map((n, i) => (n > 0 ? d.held[i] / n : 0));
  const words = shares.map((s, i) => `token ${i + 1}: ${percent(s)}`).join(', ');
  const made = svg('svg', { class: 'positions', viewBox: `0 0 ${8 * Math.max(shares.length, 1)} 20`, width: 8 * Math.max(shares.length, 1), height: 20, role: 'img', 'aria-label': `right by position in the guess: ${words}` }, svg('title', {}, words));
  shares.forEach((s, i) => made.append(svg('rect', { class: 'rail', x: 8 * i, y: 0, width: 6, height: 20 }), svg('rect', { class: 'held', x: 8 * i, y: 20 - 20 * s, width: 6, height: 20 * s })));
  return made;
}

function drafterItem(d) {
  const needed = d.needed > 0 ? ` · break-even ${alpha(d.needed)}` : '';
  if (!(d.outcomes > 0)) return html('li', {}, html('b', {}, source(d)), html('span', { class: 'numbers' }, 'not tried yet' + needed));
  return html('li', {}, html('b', {}, source(d)), bar(d),
    html('span', { class: 'numbers' }, `alpha ${alpha(d.alpha)} (${alpha(d.low)} to ${alpha(d.high)})${needed} · ${count(d.right)} of ${count(d.guessed)} used`), positionBars(d));
}

function stateParts(g) {
  const total = sum(g.states, s => s.share) || 1;
  return g.states.map(s => {
    const part = html('span', { class: 'state-part ' + s.name });
    part.style.width = at(s.share / total);
    return part;
  });
}

// ---- cards --------------------------------------------------------------------------------------------------

const cards = new Map();

function makeCard() {
  const heading = html('h3', {}), chip = html('span', { class: 'chip' }), why = html('p', { class: 'why' }), exactly = html('p', { class: 'told exactly' });
  const picture = svg('svg', { role: 'img', height: HEIGHT }), figure = html('figure', { class: 'chart decode' },
    html('figcaption', {}, html('span', {}, 'alpha of the guesses at hand'), html('span', { class: 'dashed' }, 'break-even')), picture);
  const states = html('div', { class: 'states', 'aria-hidden': 'true' }), legend = html('ul', { class: 'legend' });
  const drafters = html('ul', { class: 'drafters' });
  const element = html('article', { class: 'guess' }, html('div', { class: 'head' }, heading, chip), why, exactly, figure,
    html('p', { class: 'caption' }, 'Steps of these answers, of late'), states, legend,
    html('p', { class: 'caption' }, 'Where guesses come from, how often the next token is right, and for each place in the guess'), drafters);
  return { element, heading, chip, why, exactly, picture, states, legend, drafters };
}

function drawCard(c, g, severalModels) {
  const class_ = g.name === 'interactive' ? 'Interactive answers' : 'Batch answers';
  say(c.heading, severalModels ? `${g.model}: ${class_.toLowerCase()}` : class_);
  say(c.chip, g.chip);
  c.chip.className = 'chip ' + g.chip;
  say(c.why, plainly(g));
  c.exactly.hidden = !inNumbers(g);
  say(c.exactly, `${g.told.length > 1 ? g.main.worker.name : 'In numbers'}: ${inNumbers(g)}.`);
  chart(c.picture, remember(g.model + ' ' + g.name, g), g);
  c.states.replaceChildren(...stateParts(g));
  c.legend.replaceChildren(...g.states.map(s => html('li', { class: s.name }, `${WORDS[s.name] || s.name} ${percent(s.share)}`)));
  c.drafters.replaceChildren(...g.drafters.map(drafterItem));
}

// ---- every worker's numbers -----------------------------------------------------------------------------------

function workerRows(g) {
  return g.told.flatMap(t => t.of.drafters.map((d, i) => {
    const on = sum(t.of.states.filter(s => s.name === 'on' || s.name === 'probing'), s => s.share), guessed = d.right + d.wrong + d.behind;
    const cells = [t.worker.name, g.model, g.name, source(d), `${alpha(d.alpha)} (${alpha(d.low)} to ${alpha(d.high)})`, alpha(d.expected), alpha(d.break_even),
      `${count(d.right)} of ${count(guessed)}`, i ? '' : t.of.tokens_per_step.toFixed(2), i ? '' : (t.of.gained_per_s < 0 ? '−' : '+') + Math.abs(t.of.gained_per_s).toFixed(1), i ? '' : percent(on)];
    return html('tr', {}, ...cells.map((words, k) => html('td', { class: k > 3 ? 'number' : '' }, words)));
  }));
}

export function show(state) {
  const found = groups(state);
  const old = state.workers.filter(w => w.guesses && !(w.guesses.classes || []).length && w.guesses.drafters.length); // of an older version
  const keys = new Set(found.map(g => g.model + ' ' + g.name));
  get('guesses').hidden = !found.length && !old.length;
  for (const [key, card] of cards) if (!keys.has(key)) { card.element.remove(); cards.delete(key); }
  found.forEach((g, i) => {
    const key = g.model + ' ' + g.name, list = get('guess-cards');
    if (!cards.has(key)) cards.set(key, makeCard());
    const card = cards.get(key);
    if (list.children[i] !== card.element) list.insertBefore(card.element, list.children[i] || null);
    drawCard(card, g, state.models.length > 1);
  });
  get('guess-rows').replaceChildren(...found.flatMap(workerRows));
  get('guess-sentences').hidden = !old.length;
  get('guess-sentences').replaceChildren(...old.map(w => html('li', {}, `${w.name} is ${w.guesses.sentence}.`)));
}
