// Keys as a tree, one of them with its history, and the changes of a prefix as they happen.
import { call, user } from "./api.js";
import { encode, fromText, shown } from "./bytes.js";
import { fill, h, number } from "./dom.js";
import { showKey } from "./key.js";
import { changes } from "./changes.js";
import { level } from "./tree.js";

export const title = "Keys";

export async function show(box, params, { signal, report }) {
  const detail = h("section", { "aria-label": "Key" });
  const live = h("section", { "aria-label": "Live changes" });
  const below = fromText(params.get("below") ?? "");
  const input = h("input", { id: "below", value: params.get("below") ?? "", spellcheck: "false", autocomplete: "off" });
  const form = h("form", { class: "row", onsubmit: (e) => { e.preventDefault(); location.hash = "#/keys?below=" + encodeURIComponent(input.value); } },
    h("label", { for: "below" }, "Prefix or key"), input, h("button", { type: "submit" }, "Open"));
  const tree = h("section", { "aria-label": "Tree" });
  let chosen;
  const open = (key, button) => {
    chosen?.removeAttribute("aria-current");
    chosen = button;
    chosen?.setAttribute("aria-current", "true");
    showKey(detail, key, { signal, report }).catch(report);
  };
  box.append(form, h("div", { class: "browser" }, tree, h("div", null, detail, live)));
  fill(detail, h("p", { class: "dim" }, "No key is chosen." + (user() ? "" : " Keys can be changed by users who have logged in.")));
  changes(live, below, { signal, report, changed: (key) => {
    const fresh = detail.querySelector(".fresh");
    if (fresh && detail.dataset.key === encode(key)) fresh.hidden = false; // it may be edited just now
  } });
  if (below !== "" && !below.endsWith("/")) {
    const r = await call("kv/range", { key: encode(below), keys_only: true, serializable: true }, signal);
    if (r.kvs?.length) open(below);
  }
  await branch(tree, below, undefined, { signal, report, open });
}

// branch adds a page of a directory to its place in the tree.
async function branch(place, prefix, after, view) {
  const { entries, next, count } = await level(prefix, after, view.signal);
  if (after === undefined) place.replaceChildren(h("p", { class: "dim" }, count === 0 ? "No keys." : `${number(count)} ${count === 1 ? "key" : "keys"}`));
  const list = h("ul", { class: "tree" }, entries.map((e) => h("li", null, e.dir ? directory(e.key, prefix, view) : leaf(e.key, prefix, view))));
  place.append(list);
  if (next === undefined) return;
  const more = h("button", { type: "button", onclick: async () => {
    more.disabled = true;
    try {
      await branch(place, prefix, next, view);
      const focus = place.contains(document.activeElement) || document.activeElement === document.body;
      more.remove();
      if (focus) list.nextElementSibling?.querySelector("button, summary")?.focus();
    } catch (e) {
      more.disabled = false;
      view.report(e);
    }
  } }, "More");
  place.append(more);
}

function leaf(key, prefix, view) {
  const button = h("button", { type: "button", class: "key", onclick: () => view.open(key, button) }, shown(key.slice(prefix.length)) || "(this key)");
  return button;
}

function directory(key, prefix, view) {
  const inside = h("div");
  const d = h("details", { ontoggle: () => {
    if (d.open && !inside.hasChildNodes()) branch(inside, key, undefined, view).catch((e) => { inside.replaceChildren(); d.open = false; view.report(e); });
  } }, h("summary", { class: "key" }, shown(key.slice(prefix.length))), inside);
  return d;
}
