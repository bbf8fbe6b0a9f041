// Extensions: their states, calls and failures on this server, sources and limits.
import { call, metrics, stream } from "./api.js";
import { decode, encode, shown, text } from "./bytes.js";
import { fill, h, number, table } from "./dom.js";
import { level } from "./tree.js";

export const title = "Extensions";

const root = "/em/";
const valueOf = async (key, signal) => decode((await call("kv/range", { key: encode(key), serializable: true }, signal)).kvs?.[0]?.value);

export async function show(box, params, { signal, report }) {
  const list = h("div"), detail = h("section", { "aria-label": "Extension" }), limits = h("div");
  box.append(list, detail, h("h2", null, "Limits"), limits);
  const open = (name) => showOne(detail, name, signal).catch(report);
  await page(list, root, open, signal, report);
  const set = await valueOf(root + ".limits", signal);
  fill(limits, set ? h("pre", { tabindex: "0", "aria-label": "limits" }, text(set) ?? "") : h("p", { class: "dim" }, "The cluster has set none: the defaults hold."));
  if (params.get("name")) await open(params.get("name"));
}

// page shows the extensions of one page of the tree; each is a key and, mostly, a directory.
async function page(box, from, open, signal, report) {
  const [{ entries, next }, m] = await Promise.all([level(root, from, signal), metrics(signal)]);
  const names = entries.filter((e) => !e.dir && e.key !== root + ".limits").map((e) => e.key.slice(root.length));
  const of = (metric, name) => (m.get("stoa_extension_" + metric) ?? []).filter((s) => s.labels.extension === name).reduce((n, s) => n + s.value, 0);
  const rows = await Promise.all(names.map(async (name) => {
    const [owner, state] = await Promise.all([valueOf(`${root}${name}/owner`, signal), valueOf(`${root}${name}/state`, signal)]);
    const bad = state !== "" && state !== "enabled";
    return [h("button", { type: "button", onclick: () => open(name) }, name), shown(owner), h("span", { class: bad ? "bad" : "good" }, shown(state) || "enabled"),
      number(of("calls_total", name)), number(of("steps_total", name)), number(of("writes_total", name)), h("span", { class: of("errors_total", name) ? "bad" : "" }, number(of("errors_total", name)))];
  }));
  if (rows.length === 0 && from === root) return fill(box, h("p", null, "There are no extensions."));
  box.append(table("Extensions, with their calls on this server since it started",
    [{ name: "Name" }, { name: "Owner" }, { name: "State" }, { name: "Calls", num: true }, { name: "Steps", num: true }, { name: "Writes", num: true }, { name: "Failures", num: true }], rows));
  if (next === undefined) return;
  const more = h("button", { type: "button", onclick: () => { more.remove(); page(box, next, open, signal, report).catch(report); } }, "More");
  box.append(more);
}

async function showOne(box, name, signal) {
  const calls = [];
  let missed = 0;
  const [source] = await Promise.all([valueOf(root + name, signal), stream("stoa/extensions/logs", { name }, (batch) => {
    missed += Number(batch.missed ?? 0);
    calls.push(...(batch.calls ?? []));
  }, signal).catch((e) => { if (e.name === "AbortError") throw e; calls.push({ error: e.message }); })]);
  fill(box, h("h2", null, name),
    calls.length ? table(`Latest calls that failed or wrote to their log, newest first${missed ? `; ${number(missed)} older ones were dropped` : ""}`,
      [{ name: "Time" }, { name: "Revision", num: true }, { name: "Handler" }, { name: "Key" }, { name: "Log, failure" }],
      calls.slice(-100).reverse().map((c) => [c.time ? new Date(Number(BigInt(c.time) / 1000000n)).toISOString().replace("T", " ").slice(0, 19) : "", c.revision ? number(c.revision) : "", c.handler ?? "",
        h("span", { class: "key" }, c.key ?? ""), [(c.lines ?? []).map((l) => h("div", { class: "key" }, l)), c.error ? h("div", { class: "bad" }, c.error) : ""]]))
      : h("p", { class: "dim" }, "No call has failed, or written to its log."),
    h("h2", null, "Source"), h("pre", { tabindex: "0", "aria-label": "source" }, text(source) ?? ""));
}
