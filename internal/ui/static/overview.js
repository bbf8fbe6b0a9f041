// Members and partitions, and the traffic of the server that is asked.
import { call, metrics, permissionDenied, sum } from "./api.js";
import { decode, shown } from "./bytes.js";
import { facts, fill, h, hex, number, rate, size, table } from "./dom.js";

export const title = "Overview";

export async function show(box, _, { signal, every }) {
  const parts = { server: h("div"), members: h("div"), partitions: h("div"), quotas: h("div") };
  box.append(h("p", { class: "dim" }, "As the server that serves this page sees it, every 3 seconds."),
    parts.server, h("h2", null, "Members"), parts.members, h("h2", null, "Partitions"), parts.partitions, parts.quotas);
  const seen = {}; // of the time before, for rates
  every(3000, async () => {
    const [status, list, partitions, quotas, counters] = await Promise.all([
      call("maintenance/status", {}, signal), call("cluster/member/list", { linearizable: false }, signal),
      call("stoa/partitions/list", {}, signal), call("stoa/quotas/list", {}, signal),
    ].map(orDenied).concat(metrics(signal)));
    const passed = seen.at ? (performance.now() - seen.at) / 1000 : undefined;
    seen.at = performance.now();
    const perSecond = (name, value) => {
      const before = seen[name];
      seen[name] = value;
      return passed && before !== undefined && value >= before ? (value - before) / passed : undefined;
    };
    showServer(parts.server, status, counters, perSecond);
    showMembers(parts.members, list, status, partitions);
    showPartitions(parts.partitions, partitions, list, perSecond);
    showQuotas(parts.quotas, quotas);
  });
}

const orDenied = (p) => p.catch((e) => { if (e.code === permissionDenied || e.code === 3 || e.code === 16) return { denied: e.message }; throw e; });
const denied = (answer) => h("p", { class: "dim" }, `Not shown: ${answer.denied}.`);

function showServer(box, status, m, perSecond) {
  const of = (name) => perSecond(name, sum(m, name));
  const alarms = status.errors ?? [];
  document.getElementById("server").textContent = status.denied ? "" : `${hex(status.header?.member_id)} · ${m.get("stoa_version")?.[0]?.labels.version ?? status.version}`;
  fill(box, facts([
    ["State", alarms.length ? alarms.join(", ") : sum(m, "etcd_server_has_leader") === 0 ? "no leader" : "healthy", alarms.length || sum(m, "etcd_server_has_leader") === 0 ? "bad" : "good"],
    ["Revision", number(sum(m, "etcd_debugging_mvcc_current_revision"))],
    ["Keys", number(sum(m, "etcd_debugging_mvcc_keys_total"))],
    ["Puts per second", rate(of("etcd_mvcc_put_total"))],
    ["Ranges per second", rate(of("etcd_mvcc_range_total"))],
    ["Events per second", rate(of("etcd_debugging_mvcc_events_total"))],
    ["Watches", number(sum(m, "etcd_debugging_mvcc_watcher_total"))],
    ["Sessions", number(sum(m, "stoa_sessions"))],
    ["Leases", number(sum(m, "stoa_leases"))],
    ["Requests in progress", number(sum(m, "etcd_server_proposals_pending"))],
    ["File, in use", `${size(sum(m, "etcd_mvcc_db_total_size_in_bytes"))}, ${size(sum(m, "etcd_mvcc_db_total_size_in_use_in_bytes"))}`],
    ["Log", size(sum(m, "stoa_wal_bytes"))],
    ["Leader changes", number(sum(m, "etcd_server_leader_changes_seen_total"))],
  ]));
}

function showMembers(box, list, status, partitions) {
  if (list.denied) return fill(box, denied(list));
  const leads = (id) => partitions.partitions?.filter((p) => p.leader === id).map((p) => p.id ?? 0) ?? [];
  fill(box, table("Members of the cluster", [{ name: "Name" }, { name: "ID" }, { name: "Role" }, { name: "Leads partitions" }, { name: "Client URLs" }, { name: "Peer URLs" }],
    list.members.map((m) => [
      (m.name || "not started") + (m.ID === status.header?.member_id ? " (this server)" : ""), h("code", null, hex(m.ID)),
      m.isLearner ? "learner" : status.leader === m.ID ? "leader" : "voter", leads(m.ID).join(", ") || "–",
      (m.clientURLs ?? []).join(" "), (m.peerURLs ?? []).join(" "),
    ])));
}

function showPartitions(box, answer, list, perSecond) {
  if (answer.denied) return fill(box, denied(answer));
  const names = new Map((list.members ?? []).map((m) => [m.ID, m.name || hex(m.ID)]));
  const known = answer.partitions.some((p) => p.load !== undefined);
  const rates = answer.partitions.map((p) => perSecond("partition " + p.id, Number(p.applied_index ?? 0)));
  const busiest = Math.max(1, ...rates.map((r) => r ?? 0));
  const rows = answer.partitions.map((p, i) => {
    const load = known ? p.load ?? 0 : (rates[i] ?? 0) / busiest;
    return [
      String(p.id ?? 0), p.leader && p.leader !== "0" ? names.get(p.leader) ?? hex(p.leader) : h("span", { class: "bad" }, "none"),
      [h("meter", { min: 0, max: 1, value: load, "aria-label": `load of partition ${p.id ?? 0}` }), known ? ` ${Math.round(load * 100)} %` : ""],
      rate(rates[i]), number(p.keys), p.bytes === undefined ? "–" : size(p.bytes), String(p.slots ?? 0),
      number(Number(p.committed_index ?? 0) - Number(p.applied_index ?? 0)), number(p.closed_revision),
      h("span", { class: "key" }, (p.hottest ?? []).map((x) => shown(decode(x.prefix))).join(" ") || "–"),
    ];
  });
  fill(box, table(known ? "Load is the part of its time that the partition's loop works" : "Load is beside that of the busiest partition",
    [{ name: "Partition" }, { name: "Leader" }, { name: "Load" }, { name: "Entries per second", num: true }, { name: "Keys", num: true }, { name: "Size", num: true },
      { name: "Slots", num: true }, { name: "To apply", num: true }, { name: "Closed revision", num: true }, { name: "Hottest prefixes" }], rows),
  answer.moving ? h("p", null, "Keys are on their way between partitions.") : null,
  (answer.pins ?? []).length ? table("Pinned keys", [{ name: "Prefix" }, { name: "Partition" }],
    answer.pins.map((p) => [h("span", { class: "key" }, shown(decode(p.prefix))), String(p.partition ?? 0)])) : null);
}

function showQuotas(box, answer) {
  if (answer.denied || !answer.quotas?.length) return fill(box);
  const of = (used, most) => (most && most !== "0" ? `${number(used)} of ${number(most)}` : "–");
  fill(box, h("h2", null, "Quotas"), table(answer.enforced ? "Use of quotas" : "Quotas: none is enforced while authentication is disabled",
    [{ name: "Role or prefix" }, { name: "Keys", num: true }, { name: "Bytes", num: true }, { name: "Watches here", num: true }, { name: "Requests per second here", num: true }],
    answer.quotas.map((u) => [u.quota.role || h("span", { class: "key" }, shown(decode(u.quota.prefix))), of(u.keys, u.quota.max_keys), of(u.bytes, u.quota.max_bytes),
      of(u.watchers, u.quota.max_watchers), of(u.requests, u.quota.max_rate)])));
}
