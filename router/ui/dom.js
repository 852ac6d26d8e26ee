// Elements and words. Whatever comes from the cluster, a client or the model is set as text, never as markup.
export const get = id => document.getElementById(id);

const SVG = 'http://www.w3.org/2000/svg';

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    made.setAttribute(name, value === true ? '' : String(value));
  }
  made.append(...children.filter(c => c !== null && c !== undefined));
  return made;
}

export const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Touch the page only where something changed: a live region that is set to the same words speaks again.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const count = n => Math.round(n).toLocaleString('en-US');

export function rate(n) {
  if (n >= 100) return count(n);
  return n >= 10 || n === 0 ? String(Math.round(n)) : n.toFixed(1);
}

// Milliseconds in words of three digits.
export function time(ms) {
  if (ms === null || ms === undefined) return '–';
  if (ms < 10) return ms.toFixed(1) + ' ms';
  if (ms < 1000) return Math.round(ms) + ' ms';
  if (ms < 10000) return (ms / 1000).toFixed(2) + ' s';
  if (ms < 100000) return (ms / 1000).toFixed(1) + ' s';
  return long(ms / 1000);
}

// Seconds in words of people.
export function long(s) {
  if (s < 60) return Math.floor(s) + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min';
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor(s % 3600 / 60) + ' min';
  return Math.floor(s / 86400) + ' days';
}

export function bytes(n) {
  if (n < 1e3) return Math.round(n) + ' B';
  const units = ['kB', 'MB', 'GB', 'TB'];
  let at = 0;
  for (n /= 1e3; n >= 999.5 && at < 3; at++) n /= 1e3;
  return (n < 10 ? n.toFixed(1) : Math.round(n)) + ' ' + units[at];
}

export const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many || one + 's'}`;
