// Elements are made of text alone, never of HTML: keys and values are anybody's.

export function h(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (name in e && typeof value !== "string") e[name] = value;
    else e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

// fill replaces the content of an element, unless it would be the same: what is drawn again every
// few seconds must not take away the focus, the selection, or the place to which it was scrolled.
export function fill(e, ...children) {
  const next = h("div", null, ...children);
  if (next.innerHTML === e.innerHTML) return;
  const places = () => [...e.querySelectorAll("button, a, input, [tabindex]")];
  const before = places();
  const focus = before.indexOf(document.activeElement), left = before.map((p) => p.scrollLeft);
  e.replaceChildren(...next.childNodes);
  places().forEach((p, i) => {
    p.scrollLeft = left[i] ?? 0;
    if (i === focus) p.focus({ preventScroll: true });
  });
}

// table takes columns {name, num} and rows of cells.
export function table(caption, columns, rows) {
  const head = h("tr", null, columns.map((c) => h("th", { scope: "col", class: c.num ? "num" : undefined }, c.name)));
  const body = rows.map((cells) => h("tr", null, cells.map((cell, i) => h("td", { class: columns[i].num ? "num" : undefined }, cell ?? ""))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null, h("caption", null, caption), h("thead", null, head), h("tbody", null, body)));
}

export function facts(list) {
  return h("dl", { class: "facts" }, list.filter(Boolean).map(([name, value, kind]) =>
    h("div", null, h("dt", null, name), h("dd", { class: kind }, value ?? "–"))));
}

export const number = (n) => Number(n ?? 0).toLocaleString("en");
export const rate = (n) => (n === undefined ? "–" : n < 10 ? n.toFixed(1) : number(Math.round(n)));

export function size(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (n = Number(n ?? 0); n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 ? n : n.toFixed(1)} ${units[i]}`;
}

// IDs are printed as stoactl does.
export const hex = (id) => BigInt(id ?? 0).toString(16);
