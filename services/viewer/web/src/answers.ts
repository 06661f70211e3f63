// The answers of a run: histogram, filters, and the groups that pass them.

import { get, type Group, type Overview, type Summary } from "./api";
import { histogram } from "./chart";
import { count, empty, h, percent, signed, words } from "./dom";
import { groupRow, key, pager, problem, progress, tile } from "./parts";
import { changed, go, path, type Route } from "./route";

const RANGES: [string, string, string][] = [
  ["reward", "Reward", "0.01"],
  ["advantage", "Advantage", "0.01"],
  ["regret", "Regret", "0.01"],
  ["turn", "Turn of its episode", "1"],
  ["version", "Version", "1"],
  ["age", "Age, versions", "1"],
  ["length", "Length, tokens", "1"],
  ["surprise", "Surprise, nats a token", "0.01"],
];
const SORTS: [string, string][] = [
  ["time", "time"],
  ["reward", "mean reward"],
  ["spread", "spread of rewards"],
  ["regret", "regret"],
  ["surprise", "surprise"],
  ["length", "length"],
  ["age", "age"],
  ["version", "version"],
  ["outcome", "share of legal moves"],
  ["phase", "phase"],
  ["component", "component"],
];
const PHASES = ["opening", "middlegame", "endgame"];
const RESULTS = ["won", "drawn", "lost"];
const ORDER = ["sort", "descending", "page"];
export const LAST_LIST = "rookery-list";

/** The part of a query that says which answers, without order and page. */
export function filterOf(query: URLSearchParams): URLSearchParams {
  const filter = new URLSearchParams(query);
  for (const name of [...ORDER, "scheme"]) filter.delete(name);
  return filter;
}

export async function answers(route: Route, signal: AbortSignal): Promise<HTMLElement> {
  const { run, query } = route;
  const filter = filterOf(query);
  const [overview, summary, page] = await Promise.all([
    get<Overview>(`runs/${run}`, signal),
    get<Summary>(`runs/${run}/summary?${filter}`, signal),
    get<{ groups: Group[]; page_size: number }>(`runs/${run}/groups?${changed(query, { scheme: "" })}`, signal),
  ]);
  const to = (values: Record<string, string | string[]>): string =>
    path(run, "answers", "", changed(query, { page: "", ...values }));
  const number = Number(query.get("page") ?? 0);
  const last = Math.max(0, Math.ceil(summary.groups / page.page_size) - 1);
  sessionStorage.setItem(LAST_LIST, JSON.stringify(page.groups.map((group) => group.id)));
  return h("div", {},
    h("h1", {}, "Answers"),
    progress(overview.indexed.files, overview.indexed.of),
    problem(overview.indexed.problem),
    key(),
    h("div", { class: "split" },
      histogram(summary,
        (low, below) => query.get("reward_min") === low && (query.get("reward_below") ?? "") === below,
        (low, below) => to({ reward_min: low, reward_below: below, reward_max: "" })),
      h("div", { class: "tiles" },
        tile("answers", count(summary.answers), `of ${count(summary.all_answers)} in the archive`),
        tile("groups", count(summary.groups), "with an answer that passes the filters"),
        tile("mean reward", signed(summary.reward, 3), "of these answers"),
        tile("legal moves", percent(summary.legal, 1), "of these answers"))),
    facets(summary, overview, query, to),
    form(route, overview),
    active(route, to),
    page.groups.length
      ? h("ol", { class: "groups" }, page.groups.map((group) => groupRow(group)))
      : empty("No answer passes these filters", "Remove one of them, or start again with all answers."),
    last ? pager(number, number < last, `Page ${count(number + 1)} of ${count(last + 1)}`, (next) =>
      to({ page: String(next || "") })) : null);
}

/** Outcomes, phases, and kinds of episode as switches. */
function facets(summary: Summary, overview: Overview, query: URLSearchParams, 
  to: (v: Record<string, string[]>) => string): HTMLElement {
  const flip = (name: string, value: string, label: string): HTMLElement => {
    const on = query.getAll(name);
    const next = on.includes(value) ? on.filter((each) => each !== value) : [...on, value];
    return h("a", { class: "switch", href: to({ [name]: next }), "aria-current": on.includes(value) ? "true" : null },
      label);
  };
  const chosen = query.getAll("outcome").filter((name) => !summary.outcomes.some((each) => each.outcome === name));
  const outcomes = [...summary.outcomes, ...chosen.map((outcome) => ({ outcome, count: 0 }))];
  const kinds = overview.archive.kinds ?? [];
  return h("nav", { class: "facets", "aria-label": "Outcomes, phases and episodes" },
    outcomes.map((each) => flip("outcome", each.outcome, `${words(each.outcome)} ${count(each.count)}`)),
    h("span", { class: "gap" }),
    PHASES.map((phase) => flip("phase", phase, phase)),
    kinds.some((kind) => kind !== "move") ? [h("span", { class: "gap" }), kinds.map((kind) => flip("episode", kind, kind)),
      RESULTS.map((result) => flip("result", result, result))] : null);
}

function form(route: Route, overview: Overview): HTMLElement {
  const { query, run } = route;
  const field = (name: string, label: string, step: string): HTMLElement =>
    h("input", { name, type: "number", step: "any", "data-step": step, value: query.get(name) ?? "",
      "aria-label": label, placeholder: label.split(" ").at(-1) ?? "" });
  const range = (name: string, label: string, step: string): HTMLElement =>
    h("fieldset", {}, h("legend", {}, label), field(`${name}_min`, `${label} from`, step),
      field(`${name}_max`, `${label} to`, step));
  const options = (all: [string, string][], chosen: string | null): HTMLElement[] =>
    all.map(([value, label]) => h("option", { value, selected: value === chosen }, label));
  const submit = (event: Event): void => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.currentTarget as HTMLFormElement)) as Record<string, string>;
    if (values["sort"] === "component") values["component"] ||= overview.archive.components[0] ?? "";
    go(path(run, "answers", "", changed(query, { page: "", ...values })));
  };
  const open = RANGES.some(([name]) => query.has(`${name}_min`) || query.has(`${name}_max`)) || query.has("component");
  return h("form", { class: "filters", role: "search", onsubmit: submit },
    h("div", { class: "filter-line" },
      h("input", { name: "text", type: "search", value: query.get("text") ?? "", placeholder: "Search in the answers",
        "aria-label": "Search in the answers", id: "search" }),
      h("label", {}, "Sort by ",
        h("select", { name: "sort",
        onchange: (e: Event) => (e.currentTarget as HTMLSelectElement).form?.requestSubmit() },
        options(SORTS, query.get("sort")))),
      h("label", {}, h("span", { class: "off-screen" }, "Direction"),
        h("select", { name: "descending",
          onchange: (e: Event) => (e.currentTarget as HTMLSelectElement).form?.requestSubmit() },
          options([["", "newest or highest first"], ["false", "oldest or lowest first"]], query.get("descending")))),
      h("button", { class: "primary" }, "Search")),
    h("details", { open },
      h("summary", {}, "Ranges"),
      h("div", { class: "ranges" },
        RANGES.map(([name, label, step]) => range(name, label, step)),
        h("fieldset", {}, h("legend", {}, "Component"),
          h("select", { name: "component", "aria-label": "Component" },
            options([["", "none"], ...overview.archive.components.map((name): [string, string] => [name, name])],
            query.get("component"))),
          field("component_min", "Component from", "0.01"), field("component_max", "Component to", "0.01"))),
      h("button", {}, "Apply")));
}

/** The filters that are on, each with a way to remove it. */
function active({ run, query }: Route, to: (v: Record<string, string>) => string): HTMLElement {
  const names = [...filterOf(query).keys()].filter((name) => !["outcome", "phase", "episode", "result"].includes(name));
  return h("p", { class: "active" },
    names.map((name) => h("a", { href: to({ [name]: "" }), class: "remove", "aria-label": `Remove ${words(name)}` },
      `${words(name)} ${Number.isNaN(Number(query.get(name))) ? query.get(name) : Number(Number(query.get(name)).toFixed(3))}`, h("span", { "aria-hidden": "true" }, " ×"))),
    names.length ? h("a", { href: path(run, "answers") }, "All answers") : null,
    h("a", { href: path(run, "rescore", "", filterOf(query)) }, "Rescore these"));
}
