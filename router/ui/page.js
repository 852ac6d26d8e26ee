// The page at /: asks the router once a second how the cluster is, and draws what changed.
import { get, html, say, count, rate, time, bytes, long, plural } from './dom.js';
import { json, setKey, onKeyWanted, KeyWanted } from './api.js';
import * as picture from './picture.js';
import * as charts from './charts.js';
import * as guesses from './guesses.js';
import * as requests from './requests.js';
import * as prompt from './prompt.js';

const SIGNS = { bad: ['▲', 'Failing'], warning: ['◆', 'Warning'], note: ['●', 'Note'] };
let state = null;
let recent = [];
let turn = 0;

// ---- header, alerts, figures ----------------------------------------------------------------------

function showState(words, kind) {
  say(get('state'), words);
  get('state').className = 'state ' + kind;
}

function header() {
  const names = state.models.map(m => m.name);
  const ready = state.models.filter(m => m.ready).length;
  say(get('model'), names.join(', '));
  document.title = `Penstock · ${names[0]}`;
  prompt.models(names);
  say(get('history-of'), names.length > 1 ? 'all models together · ' : '');
  if (state.draining) showState('draining', 'warning');
  else if (ready === names.length) showState('ready', 'good');
  else showState(ready ? `${ready} of ${names.length} models ready` : 'not ready', ready ? 'warning' : 'bad');
  say(get('facts'), `up ${long(state.uptime_s)} · version ${state.version}`);
}

// Only what is new is added, so that it alone is spoken.
function alerts() {
  const list = get('alert-list');
  const found = state.alerts.length ? state.alerts : [{ level: 'calm', code: 'calm', text: 'Nothing needs attention.' }];
  const old = new Map([...list.children].map(item => [item.dataset.code, item]));
  const items = found.map((a, i) => {
    const code = a.level === 'calm' ? 'calm' : `${a.code} ${found.slice(0, i).filter(b => b.code === a.code).length}`;
    let item = old.get(code);
    if (!item) {
      const [sign, word] = SIGNS[a.level] || ['✓', ''];
      item = html('li', {}, html('span', { class: 'sign', 'aria-hidden': 'true' }, sign), html('b', { class: 'quiet' }, word ? word + ': ' : ''), html('span', {}));
      item.dataset.code = code;
    }
    item.className = a.level;
    say(item.lastElementChild, a.text);
    return item;
  });
  const kept = new Set(items);
  for (const item of [...list.children]) if (!kept.has(item)) item.remove();
  items.forEach((item, i) => { if (list.children[i] !== item) list.insertBefore(item, list.children[i] || null); });
}

function tile(name, value, unit, below) {
  const list = get('tiles');
  let made = [...list.children].find(t => t.dataset.name === name);
  if (!made) {
    made = html('div', {}, html('dt', {}, name), html('dd', {}, html('strong', {}), ' ', html('span', { class: 'unit' })), html('dd', { class: 'below' }));
    made.dataset.name = name;
    list.append(made);
  }
  say(made.querySelector('strong'), value);
  say(made.querySelector('.unit'), unit);
  say(made.querySelector('.below'), below);
}

function tiles(now) {
  const split = ms => (ms === null ? ['–', ''] : time(ms).split(' '));
  const high = ms => (ms === null ? 'none within a minute' : `95 %: ${time(ms)}`);
  const decode = state.workers.filter(w => w.role === 'decode');
  const sum = of => decode.reduce((n, w) => n + of(w), 0);
  const pages = sum(w => w.pages), held = sum(picture.held);
  const [handoff, unit] = bytes(now.handoff).split(' ');
  tile('Requests', count(state.requests_running), 'running', `${count(state.requests_waiting)} waiting`);
  tile('Output', rate(now.tokens), 'tokens/s', `${rate(now.requests)} requests/s`);
  tile('First token', ...split(now.first), high(now.firstHigh));
  tile('Per token', ...split(now.token), high(now.tokenHigh));
  tile('Hand-off', handoff, unit + '/s', `${rate(now.prompts)} prompt tokens/s`);
  tile('Decode pages', pages ? String(Math.round(100 * held / pages)) : '–', pages ? '% held' : '', `${count(held)} of ${plural(pages, 'page')}`);
}

// ---- asking -----------------------------------------------------------------------------------------

function draw() {
  const now = charts.now();
  header();
  alerts();
  tiles(now);
  picture.show(state, now);
  picture.table(state);
  guesses.show(state);
  requests.show(recent, state.models.length > 1);
  charts.show();
}

// False: the router did not answer, and the page says so.
async function gather() {
  const more = turn % 2 === 0; // requests and samples, every other time
  try {
    const [cluster, list] = await Promise.all([json('/cluster'), more ? json('/requests') : null, more ? charts.refresh() : null]);
    state = cluster;
    if (list) recent = list.requests;
    turn++;
    return true;
  } catch (error) {
    showState(error instanceof TypeError ? 'no answer from the router' : error.message, error instanceof KeyWanted ? 'warning' : 'bad');
    return false;
  }
}

async function refresh() {
  if (await gather()) draw();
  // Many workers make a long answer, and nobody reads a page that is hidden.
  setTimeout(refresh, document.hidden ? 10000 : state && state.workers.length > 50 ? 3000 : 1000);
}

onKeyWanted(() => { get('key-form').hidden = false; });
get('key-form').addEventListener('submit', event => {
  event.preventDefault();
  setKey(get('key').value);
  get('key').value = '';
  get('key-form').hidden = true;
});
let width = 0;
new ResizeObserver(() => {
  if (!state || document.body.clientWidth === width) return;
  width = document.body.clientWidth;
  picture.show(state, charts.now());
  charts.show();
}).observe(document.body);
get('workers-details').open = matchMedia('(min-width: 1800px)').matches; // there is room
requests.legend();
refresh();
