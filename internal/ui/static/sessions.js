// Leases, and the keys that are tied to them. A session is a lease.
import { call, metrics, notFound, sum } from "./api.js";
import { decode, shown } from "./bytes.js";
import { facts, h, hex, number, table } from "./dom.js";

export const title = "Sessions and leases";

const pageSize = 25;

export async function show(box, _, { signal, report }) {
  const [answer, m] = await Promise.all([call("lease/leases", {}, signal), metrics(signal)]);
  const ids = (answer.leases ?? []).map((l) => l.ID);
  box.append(facts([["Leases", number(ids.length)], ["Sessions", number(sum(m, "stoa_sessions"))]]),
    h("p", { class: "dim" }, "A session is a lease; its keys are deleted when it ends. The remaining time is that at which the row was read."));
  if (ids.length === 0) return void box.append(h("p", null, "There are no leases."));
  await page(box, ids, 0, signal, report);
}

async function page(box, ids, from, signal, report) {
  const rows = await Promise.all(ids.slice(from, from + pageSize).map(async (id) => {
    try {
      const l = await call("lease/timetolive", { ID: id, keys: true }, signal);
      const keys = l.keys ?? [];
      const names = keys.slice(0, 5).map((k) => h("a", { class: "key", href: "#/keys?below=" + encodeURIComponent(shown(decode(k))) }, shown(decode(k))));
      return [h("code", null, hex(id)), l.TTL === "-1" ? "ended" : `${number(l.TTL)} s`, `${number(l.grantedTTL)} s`, number(keys.length), names.flatMap((n) => [n, " "])];
    } catch (e) {
      if (e.code === notFound) return [h("code", null, hex(id)), "ended", "", "", ""];
      return [h("code", null, hex(id)), h("span", { class: "dim" }, e.message), "", "", ""];
    }
  }));
  box.append(table(`Leases ${number(from + 1)} to ${number(from + rows.length)} of ${number(ids.length)}`,
    [{ name: "ID" }, { name: "Remaining", num: true }, { name: "Granted", num: true }, { name: "Keys", num: true }, { name: "First keys" }], rows));
  if (from + pageSize >= ids.length) return;
  const more = h("button", { type: "button", onclick: () => { more.remove(); page(box, ids, from + pageSize, signal, report).catch(report); } }, "More");
  box.append(more);
}
