// One key: its value, where it comes from, its history, and its change by a user.
import { call, user } from "./api.js";
import { decode, encode, fromText, shown, text } from "./bytes.js";
import { fill, h, hex, number, size, table } from "./dom.js";

const page = 10; // versions
const most = 16 << 10; // bytes of a value that are shown at once

export async function showKey(box, key, view) {
  box.dataset.key = encode(key);
  const r = await call("kv/range", { key: encode(key), serializable: true }, view.signal);
  if (box.dataset.key !== encode(key)) return; // another has been chosen meanwhile
  const kv = r.kvs?.[0];
  if (!kv) return fill(box, h("h2", { class: "key" }, shown(key)), h("p", null, "The key doesn't exist."));
  const value = decode(kv.value);
  const versions = h("div");
  const again = h("button", { type: "button", onclick: () => showKey(box, key, view).catch(view.report) }, "Show");
  box.replaceChildren(h("h2", { class: "key" }, shown(key)),
    h("p", { class: "fresh", role: "status", hidden: true }, "The key has changed. ", again),
    h("p", { class: "dim" }, `Created at revision ${number(kv.create_revision)}, changed at ${number(kv.mod_revision)}, version ${number(kv.version)}, ${size(value.length)}`,
      kv.lease && kv.lease !== "0" ? [", lease ", h("code", null, hex(kv.lease))] : ""),
    content(value), user() ? change(box, key, kv, value, view) : "",
    h("h2", null, "History"), versions);
  const older = (from) => h("button", { type: "button", onclick: (e) => { e.target.remove(); history(versions, key, from, older, view).catch(view.report); } }, from === kv ? "Show the history" : "Older");
  versions.append(older(kv));
}

// content shows bytes that are no text in hexadecimal.
function content(value) {
  const t = text(value);
  const whole = t ?? [...value].map((c) => c.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
  const pre = h("pre", { tabindex: "0", "aria-label": t === undefined ? "value in hexadecimal" : "value" }, whole.slice(0, most) || "(empty)");
  if (whole.length <= most) return pre;
  const all = h("button", { type: "button", onclick: () => { pre.textContent = whole; all.remove(); } }, `Show all ${size(value.length)}`);
  return h("div", null, pre, all);
}

// history reads back from one version to the one before. It ends where the key was created, or
// where the history has been compacted.
async function history(box, key, from, older, view) {
  const rows = [];
  let end, at = from;
  while (rows.length < page) {
    rows.push([number(at.mod_revision), number(at.version), content(decode(at.value))]);
    if (at.mod_revision === at.create_revision) { end = "Created."; break; }
    try {
      const r = await call("kv/range", { key: encode(key), revision: String(BigInt(at.mod_revision) - 1n), serializable: true }, view.signal);
      if (!r.kvs?.length) { end = "Created."; break; }
      at = r.kvs[0];
    } catch (e) {
      if (!/compacted/.test(e.message)) throw e;
      end = "What is older has been compacted.";
      break;
    }
  }
  box.append(table("Versions, newest first", [{ name: "Revision", num: true }, { name: "Version", num: true }, { name: "Value" }], rows),
    end ? h("p", { class: "dim" }, end) : older(at));
}

// change is for users. It fails if somebody else has changed the key meanwhile.
function change(box, key, kv, value, view) {
  const t = text(value);
  const area = h("textarea", { "aria-label": "new value", spellcheck: "false" });
  area.value = t ?? "";
  const unchanged = [{ key: encode(key), target: "MOD", result: "EQUAL", mod_revision: kv.mod_revision }];
  const commit = async (op) => {
    try {
      const r = await call("kv/txn", { compare: unchanged, success: [op] }, view.signal);
      if (!r.succeeded) throw new Error("The key has been changed meanwhile; nothing was written.");
      view.report();
      await showKey(box, key, view);
    } catch (e) {
      view.report(e);
    }
  };
  const lease = kv.lease && kv.lease !== "0" ? { ignore_lease: true } : {};
  return h("details", null, h("summary", null, "Change"), t === undefined ? h("p", null, "The value is no text, and would be replaced.") : "", area,
    h("p", { class: "row" },
      h("button", { type: "button", onclick: () => commit({ request_put: { key: encode(key), value: encode(fromText(area.value)), ...lease } }) }, "Save"),
      h("button", { type: "button", onclick: () => confirm(`Delete ${shown(key)}?`) && commit({ request_delete_range: { key: encode(key) } }) }, "Delete")));
}
