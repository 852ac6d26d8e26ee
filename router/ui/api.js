// Talking to the router. An API key lives in this module's memory and nowhere else.
let key = '';
let asks = () => {};

export class KeyWanted extends Error {}

export const setKey = text => { key = text; };
// Called when the router wants a key, or another one.
export const onKeyWanted = call => { asks = call; };

export async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = 'Bearer ' + key;
  const answer = await fetch(path, { cache: 'no-store', ...options, headers });
  if (answer.status === 401 || answer.status === 403) asks();
  return answer;
}

export async function json(path) {
  const answer = await ask(path);
  if (answer.status === 401) throw new KeyWanted('asks for a key');
  if (answer.status === 403) throw new KeyWanted('this key is not an operator\'s');
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
  return answer.json();
}

// The events of a streamed answer, decoded.
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    for (let end; (end = rest.indexOf('\n\n')) >= 0;) {
      const event = rest.slice(0, end);
      rest = rest.slice(end + 2);
      if (event.startsWith('data: ') && event !== 'data: [DONE]') yield JSON.parse(event.slice(6));
    }
  }
}
