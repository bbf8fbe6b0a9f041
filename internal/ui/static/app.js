// The frame of the page: which view is shown, and as which user.
import * as api from "./api.js";
import { h } from "./dom.js";
import * as overview from "./overview.js";
import * as keys from "./keys.js";
import * as extensions from "./extensions.js";
import * as sessions from "./sessions.js";
import * as requests from "./requests.js";

const views = { "": overview, keys, extensions, sessions, requests };
const main = document.getElementById("main");
const notice = document.getElementById("notice");
const account = document.getElementById("account");
const dialog = document.getElementById("login");
let shown; // ends the requests of the view

export function say(e) {
  if (e?.name !== "AbortError") notice.textContent = e ? e.message ?? String(e) : "";
}

// The view and what it shows are in the address: #/keys?key=…
function show(focus) {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const view = views[path] ?? overview;
  shown?.abort();
  shown = new AbortController();
  const { signal } = shown;
  say();
  for (const a of document.querySelectorAll("nav a")) {
    if (a.hash === "#/" + path) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  document.title = `${view.title} – stoa`;
  const box = h("div");
  main.replaceChildren(h("h1", null, view.title), box);
  if (focus) main.focus();
  const report = (e) => { if (!signal.aborted) say(e); };
  const every = (ms, f) => poll(ms, f, signal, report);
  view.show(box, new URLSearchParams(query), { signal, report, every }).catch(report);
}

// poll calls f again and again while the view is shown, and the page can be seen.
async function poll(ms, f, signal, report) {
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        await f();
        report();
      } catch (e) {
        report(e);
      }
    }
    await new Promise((done) => {
      const timer = setTimeout(done, ms);
      signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
    });
  }
}

function showAccount() {
  document.getElementById("user").textContent = api.user() ?? "read-only";
  account.textContent = api.user() ? "Log out" : "Log in";
}

account.addEventListener("click", () => {
  if (api.user()) api.logOut();
  else dialog.showModal();
});
document.getElementById("login-cancel").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => {
  document.getElementById("login-form").reset();
  document.getElementById("login-error").textContent = "";
});
document.getElementById("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const error = document.getElementById("login-error");
  error.textContent = "";
  try {
    await api.logIn(document.getElementById("login-name").value, document.getElementById("login-password").value);
    dialog.close();
  } catch (e) {
    error.textContent = e.message;
  }
});
api.onLogin(() => { showAccount(); show(); });

document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", () => show(true));
show();
