// Keys and values are strings with one character per byte, in the order of the keys.

export const encode = (s) => btoa(s);
export const decode = (s) => (s ? atob(s) : "");

export function fromText(text) {
  let s = "";
  for (const b of new TextEncoder().encode(text)) s += String.fromCharCode(b);
  return s;
}

// text is undefined for bytes that aren't UTF-8.
export function text(s) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(s, (c) => c.charCodeAt(0)));
  } catch {
    return undefined;
  }
}

const hidden = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\\]/g;

// shown is for one line: control characters, and those that turn the direction, are escaped.
export function shown(s) {
  const t = text(s);
  if (t === undefined) return s.replace(/[^\x20-\x5b\x5d-\x7e]/g, (c) => "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0"));
  return t.replace(hidden, (c) => (c === "\\" ? "\\\\" : "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0")));
}

// rangeEnd is the first key behind those that begin with prefix; "\0" is the end of all keys.
export function rangeEnd(prefix) {
  for (let i = prefix.length - 1; i >= 0; i--) {
    const c = prefix.charCodeAt(i);
    if (c < 255) return prefix.slice(0, i) + String.fromCharCode(c + 1);
  }
  return "\0";
}
