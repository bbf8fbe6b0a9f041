// Requests to the server that the page came from, as JSON.

// The token is here and nowhere else: it ends with the page.
let login = null; // {user, token}
const listeners = new Set();

export const user = () => login?.user;
export const onLogin = (f) => listeners.add(f);

function become(next) {
  login = next;
  for (const f of listeners) f();
}

export class Failed extends Error {
  constructor(code, message) {
    super(message);
    this.code = code; // gRPC's
  }
}
export const permissionDenied = 7, notFound = 5;

function request(method, body, signal) {
  const headers = { "Content-Type": "application/json" };
  if (login) {
    headers.Authorization = login.token;
    headers["Stoa-User"] = login.user;
  }
  return fetch("v3/" + method, { method: "POST", headers, body: JSON.stringify(body ?? {}), signal, credentials: "same-origin", cache: "no-store" });
}

function failed(body, status) {
  const e = new Failed(body?.code ?? 2, body?.message ?? `the server answered ${status}`);
  const ended = e.code === 16 || /invalid auth token|auth token is not provided/.test(e.message);
  if (ended && login) become(null);
  return e;
}

export async function call(method, body, signal) {
  const r = await request(method, body, signal);
  const answer = await r.json().catch(() => undefined);
  if (!r.ok) throw failed(answer, r.status);
  return answer ?? {};
}

// stream calls take with each message of the answer.
export async function stream(method, body, take, signal) {
  const r = await request(method, body, signal);
  if (!r.ok) throw failed(await r.json().catch(() => undefined), r.status);
  const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.filter(Boolean)) {
      const message = JSON.parse(line);
      if (message.error) throw failed(message.error);
      take(message.result);
    }
  }
}

// Whoever has logged in may have to wait: passwords are hashed slowly.
export async function logIn(name, password) {
  const answer = await call("auth/authenticate", { name, password });
  become({ user: name, token: answer.token });
}

export const logOut = () => become(null);

// metrics of this server: name -> list of {labels, value}.
export async function metrics(signal) {
  const r = await fetch("../metrics", { signal, cache: "no-store" });
  if (!r.ok) throw new Failed(2, `the metrics: the server answered ${r.status}`);
  return parse(await r.text());
}

export function parse(page) {
  const all = new Map();
  for (const line of page.split("\n")) {
    const m = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!m || line.startsWith("#")) continue;
    const labels = {};
    for (const l of (m[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[l[1]] = l[2].replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    if (!all.has(m[1])) all.set(m[1], []);
    all.get(m[1]).push({ labels, value: Number(m[3]) });
  }
  return all;
}

export const sum = (all, name) => all.get(name)?.reduce((n, s) => n + s.value, 0);
