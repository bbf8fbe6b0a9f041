// The changes of a prefix as they happen.
import { stream } from "./api.js";
import { decode, encode, rangeEnd, shown, text } from "./bytes.js";
import { h, number } from "./dom.js";

const most = 200; // rows

export function changes(box, prefix, { signal, report, changed }) {
  const body = h("tbody");
  const state = h("p", { class: "dim", role: "status" });
  const list = h("div", { class: "scroll", hidden: true, tabindex: "0", role: "region", "aria-label": "Changes, newest first" }, h("table", null,
    h("thead", null, h("tr", null, ["Revision", "Event", "Key", "Value"].map((n) => h("th", { scope: "col" }, n)))), body));
  let watching, pending = [], timer;
  const draw = () => {
    timer = undefined;
    body.prepend(...pending.slice(-most).reverse().map(row));
    pending = [];
    while (body.rows.length > most) body.lastChild.remove();
  };
  const take = (answer) => {
    if (answer.created) state.textContent = `Watching ${prefix === "" ? "all keys" : shown(prefix)} from revision ${number(answer.header?.revision)} on.`;
    if (answer.canceled) throw new Error(answer.cancel_reason || "The server has ended the watch.");
    const touched = new Set();
    for (const e of answer.events ?? []) {
      pending.push(e);
      touched.add(decode(e.kv.key));
    }
    if (pending.length > 10 * most) pending = pending.slice(-most);
    for (const key of touched) changed(key);
    timer ??= setTimeout(draw, 250); // a busy prefix must not make the page busy
  };
  const stop = () => { watching?.abort(); watching = undefined; button.textContent = "Watch"; };
  const start = async () => {
    const mine = (watching = new AbortController());
    signal.addEventListener("abort", () => mine.abort(), { once: true });
    button.textContent = "Stop";
    list.hidden = false;
    try {
      await stream("watch", { create_request: { key: encode(prefix || "\0"), range_end: encode(rangeEnd(prefix)) } }, take, mine.signal);
    } catch (e) {
      report(e);
    }
    if (watching === mine) { stop(); state.textContent = "The watch has ended."; }
  };
  const button = h("button", { type: "button", onclick: () => { if (watching) { stop(); state.textContent = "Stopped."; } else start(); } }, "Watch");
  box.replaceChildren(h("h2", null, "Live changes"), h("p", { class: "row" }, button, state), list);
}

function row(e) {
  const deleted = e.type === "DELETE";
  const value = decode(e.kv.value);
  const short = text(value) === undefined ? `${value.length} bytes` : shown(value.slice(0, 200)) + (value.length > 200 ? "…" : "");
  return h("tr", null, h("td", { class: "num" }, number(e.kv.mod_revision)), h("td", { class: deleted ? "bad" : "" }, deleted ? "deleted" : e.kv.create_revision === e.kv.mod_revision ? "created" : "changed"),
    h("td", { class: "key" }, shown(decode(e.kv.key))), h("td", { class: "key" }, deleted ? "" : short));
}
