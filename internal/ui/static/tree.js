// One level of the keys' tree, found with few and small ranges: what lies below a directory is
// skipped, however much it is.
import { call } from "./api.js";
import { decode, encode, rangeEnd } from "./bytes.js";

const pageSize = 100; // entries
const step = 64; // keys of a range

// level returns the entries right below prefix, from key after on: {entries, next, count}. An
// entry is {key, dir}. next is where the following page begins, undefined at the end; count is of
// all keys below the prefix, from after on.
export async function level(prefix, after, signal) {
  const end = rangeEnd(prefix);
  const entries = [];
  let from = after ?? (prefix === "" ? "\0" : prefix), count;
  while (entries.length < pageSize) {
    const r = await call("kv/range", { key: encode(from), range_end: encode(end), limit: step, keys_only: true, serializable: true }, signal);
    count ??= Number(r.count ?? 0);
    const kvs = (r.kvs ?? []).map((kv) => decode(kv.key));
    for (const key of kvs) {
      if (key < from) continue; // skipped with its directory
      const slash = key.indexOf("/", prefix.length + 1);
      const dir = slash >= 0;
      const name = dir ? key.slice(0, slash + 1) : key;
      entries.push({ key: name, dir });
      from = dir ? rangeEnd(name) : name + "\0";
      if (from === "\0") return { entries, count };
      if (entries.length === pageSize) break;
    }
    if (!r.more && (kvs.length === 0 || kvs[kvs.length - 1] < from)) return { entries, count };
    if (end !== "\0" && from >= end) return { entries, count };
  }
  return { entries, count, next: from };
}
