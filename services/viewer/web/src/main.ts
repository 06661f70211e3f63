// The page: header, navigation, keyboard, live news. A view is a function from its address to an element.

import { answers } from "./answers";
import { token } from "./api";
import { battery } from "./battery";
import { compare, position, rescore } from "./compare";
import { dead } from "./dead";
import { count, empty, h } from "./dom";
import { choose, group } from "./group";
import { overview, runs } from "./overview";
import { skeleton } from "./parts";
import { play } from "./play";
import { go, parse, path, type Route } from "./route";
import { training } from "./training";

type View = (route: Route, signal: AbortSignal) => Promise<HTMLElement>;

const VIEWS: Record<string,
  View> = { "": overview, answers, groups: group, training, battery, position, compare, rescore, play, dead };
const TABS: [string, string, string][] = [
  ["", "Overview", "o"],
  ["answers", "Answers", "a"],
  ["training", "Training", "t"],
  ["battery", "Battery", "b"],
  ["compare", "Compare", "c"],
  ["rescore", "Rescore", "r"],
  ["play", "Play", "p"],
  ["dead", "Dead letters", "d"],
];
const REFRESHED = ["", "training"];
const THEME = "rookery-theme";

const tabs = h("nav", { class: "tabs", "aria-label": "Views" });
const live = h("span", { class: "live", role: "status" });
const main = h("main", { id: "main", tabindex: -1 });
const help = h("dialog", { "aria-label": "Keys" }) as HTMLDialogElement;
let pending = new AbortController();
let source: EventSource | null = null;
let followed = "";
/** The last run that sent news. */
let heard = "";
let failed = false;

function shell(): void {
  const toggle = h("button",
    { class: "icon", title: "Light or dark (key: l)", "aria-label": "Light or dark", onclick: flip }, "◐");
  const keys = h("button",
    { class: "icon", title: "Keys (key: ?)", "aria-label": "Keys", onclick: () => help.showModal() }, "?");
  const rows: [string, string][] = [["g then o a t b c r p d", "go to a view"], ["j k", "next, previous row or answer"],
    ["Enter", "open it"], ["1 to 9", "choose an answer of a group"], ["[ ]", "previous, next group"],
    ["← →", "previous, next turn of a game"], ["/", "search"],
    ["l", "light or dark"], ["?", "these keys"]];
  help.append(h("h2", {}, "Keys"),
    h("dl", {}, rows.map(([key, meaning]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, meaning)])),
    h("form", { method: "dialog" },
    h("button", { onclick: (event: Event) => { event.preventDefault(); help.close(); } }, "Close")));
  document.body.append(
    h("a", { class: "skip", href: "#main", onclick: (event: Event) => { event.preventDefault(); main.focus(); } },
      "Skip to the content"),
    h("header", { class: "top" },
      h("a", { href: "/", class: "brand" }, h("img", { src: "/static/icon.svg", alt: "", width: 22, height: 22 }),
      "Rookery"), tabs, live, keys, toggle),
    main, help);
}

async function render(): Promise<void> {
  const route = parse(location);
  pending.abort();
  pending = new AbortController();
  const { signal } = pending;
  const address = location.pathname + location.search;
  const view = route.run ? VIEWS[route.view] : runs;
  header(route);
  follow(route.run);
  // A view that is drawn again stays until its successor is here.
  const slow = setTimeout(() => main.dataset["shown"] === address || main.replaceChildren(skeleton()), 150);
  try {
    const element = view ? await view(route, signal) : empty("No such view", location.pathname);
    if (signal.aborted) return;
    main.replaceChildren(element);
    main.dataset["shown"] = address;
    failed = false;
    document.title = [element.querySelector("h1")?.textContent, route.run, "Rookery"].filter(Boolean).join(" · ");
    // The turns of a game follow one another in their place.
    if (route.view === "groups" && !element.querySelector(".game")) document.getElementById(`answer-${route.query.get("answer")}`)?.scrollIntoView({ block: "nearest" });
  } catch (error) {
    failed = true;
    if (!signal.aborted) main.replaceChildren(h("div", {}, h("h1", {}, "Not shown"),
      empty("This view cannot be shown", (error as Error).message)));
  } finally {
    clearTimeout(slow);
  }
}

function header(route: Route): void {
  const shown = route.view === "groups" || route.view === "position" ? "answers" : route.view;
  tabs.replaceChildren(...(route.run
    ? [h("a", { href: path(route.run), class: "run-name", title: route.run }, route.run),
      ...TABS.map(([view, label]) =>
      h("a", { href: path(route.run, view), "aria-current": view === shown ? "page" : null }, label))]
    : []));
  tabs.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

/** Listens for news of a run, and shows them: views of the whole are drawn again, lists only on request. */
function follow(run: string): void {
  if (document.hidden) run = ""; // a browser allows six connections to one address, over all tabs
  if (run === followed) return;
  followed = run;
  source?.close();
  source = null;
  live.replaceChildren();
  if (!run) return;
  let first = true;
  let partial = false;
  source = new EventSource(`/api/runs/${encodeURIComponent(run)}/events`);
  source.onmessage = (event: MessageEvent<string>) => {
    type News = { step: number; files: number; of: number; indexing: boolean };
    const { step, files, of, indexing } = JSON.parse(event.data) as News;
    const text = indexing || files < of ? `indexing ${count(files)} of ${count(of)}` : `step ${count(step)}`;
    const news = !first && !REFRESHED.includes(parse(location).view)
      ? h("button", { class: "link", onclick: () => void render() }, "show new") : null;
    live.replaceChildren(h("i", { class: first ? "dot" : "dot on" }), text, ...(news ? [" ", news] : []));
    // A view that was drawn while the run was still being indexed is drawn again at the end, whatever it shows.
    if (failed || run !== heard || (partial && !indexing) || REFRESHED.includes(parse(location).view)) void render();
    heard = run;
    first = false;
    partial = indexing;
  };
  source.onerror = () => live.replaceChildren(h("i", { class: "dot off" }), "no connection");
}

function setTheme(name: string): void {
  document.documentElement.dataset["theme"] = name;
}

function flip(): void {
  const next = document.documentElement.dataset["theme"] === "dark" ? "light" : "dark";
  localStorage.setItem(THEME, next);
  setTheme(next);
  void render(); // the charts are drawn in the colours of the theme
}

let going = false;

function onKey(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
  const route = parse(location);
  const { key } = event;
  const tab = TABS.find(([, , letter]) => letter === key);
  if (going && tab && route.run) go(path(route.run, tab[0]));
  else if (key === "/") document.getElementById("search")?.focus();
  else if (key === "?") help.showModal();
  else if (key === "l") flip();
  else if (key === "j" || key === "k") step(key === "j" ? 1 : -1);
  else if (["[", "]", "ArrowLeft", "ArrowRight"].includes(key) && document.querySelector(`[data-key="${key}"]`)) (document.querySelector(`[data-key="${key}"]`) as HTMLElement | null)?.click();
  else if (route.view === "groups" && /^[1-9]$/.test(key)) choose(route, Number(key) - 1);
  else if (key !== "g") return void (going = false);
  going = key === "g";
  event.preventDefault();
}

/** Moves the focus to the next or previous row. */
function step(by: number): void {
  const rows = [...main.querySelectorAll<HTMLElement>(".row-link")];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.closest("li, article, tr")?.scrollIntoView({ block: "nearest" });
}

function onClick(event: MouseEvent): void {
  const link = (event.target as Element).closest("a");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.origin !== location.origin || link.hash || link.download) return;
  event.preventDefault();
  const before = location.pathname;
  go(link.href);
  if (before !== location.pathname) window.scrollTo(0, 0);
}

const secret = new URLSearchParams(location.hash.slice(1)).get("token");
if (secret !== null) {
  token.set(secret);
  history.replaceState(null, "", location.pathname + location.search);
}
setTheme(localStorage.getItem(THEME) ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
shell();
document.addEventListener("click", onClick);
document.addEventListener("keydown", onKey);
window.addEventListener("popstate", () => void render());
document.addEventListener("visibilitychange", () => follow(parse(location).run));
void render();
