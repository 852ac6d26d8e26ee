// Guessed tokens: for each decode worker, in a sentence and a bar, how often they are right and how often they must be to pay.
import { get, html, say, count } from './dom.js';

const SHOWN = 24; // workers; all are in /cluster

const percent = share => `${Math.round(100 * share)} %`;
const at = share => `${(100 * share).toFixed(1)}%`; // of the bar's width

function bar(worker, d, needed) {
  const words = `${d.name}: ${percent(d.alpha)} right (${percent(d.low)} to ${percent(d.high)} with 95 % certainty), ${percent(needed)} needed`;
  const made = html('div', { class: 'chance', role: 'img', 'aria-label': words, title: words },
    html('span', { class: 'interval' }), html('span', { class: 'estimate' }), html('span', { class: 'needed' }));
  const [interval, estimate, mark] = made.children;
  interval.style.left = at(d.low);
  interval.style.width = at(Math.max(0, d.high - d.low));
  estimate.style.left = at(d.alpha);
  mark.style.left = at(needed);
  return made;
}

function row(worker, d, first) {
  const g = worker.guesses;
  const steps = g.steps_on + g.steps_probing + g.steps_off;
  const guessed = d.right + d.wrong + d.behind;
  return html('tr', {},
    html('td', {}, first ? worker.name : ''), html('td', {}, d.name), html('td', {}, bar(worker, d, g.break_even)),
    html('td', { class: 'number' }, percent(d.alpha)), html('td', { class: 'number' }, percent(g.break_even)),
    html('td', { class: 'number' }, first && steps ? percent((g.steps_on + g.steps_probing) / steps) : ''),
    html('td', { class: 'number' }, `${count(d.right)} of ${count(guessed)}`));
}

export function show(state) {
  const workers = state.workers.filter(w => w.guesses && w.guesses.drafters.length).sort((a, b) => a.name.localeCompare(b.name)).slice(0, SHOWN);
  get('guesses').hidden = workers.length === 0;
  get('guess-rows').replaceChildren(...workers.flatMap(w => w.guesses.drafters.map((d, i) => row(w, d, i === 0))));
  const list = get('guess-sentences');
  while (list.children.length > workers.length) list.lastElementChild.remove();
  workers.forEach((w, i) => {
    const item = list.children[i] || list.appendChild(html('li', {}));
    say(item, `${w.name} is ${w.guesses.sentence}.`);
  });
}
