// The answers of an evaluation or a battery: filtered, and those of two players side by side.

import { type BatteryPage, get } from "./api";
import { board } from "./board";
import { count, empty, fixed, h, modelText, visible, words } from "./dom";
import { pager } from "./parts";
import { changed, go, path, type Route } from "./route";

const FIELDS: [string, string][] = [["section", "Section"], ["task", "Task"], ["outcome", "Outcome"]];

export async function battery({ run, query }: Route, signal: AbortSignal): Promise<HTMLElement> {
  const data = await get<BatteryPage>(`runs/${run}/battery?${query}`, signal);
  const to = (values: Record<string, string | string[]>): string =>
    path(run, "battery", "", changed(query, { page: "", ...values }));
  if (!data.players.length) return h("div", {}, h("h1", {}, "Battery"), empty("No answers of an evaluation here",
    `\`rookery battery PLAYER ... --out runs/${run}\` asks players the questions of a battery.`));
  const page = Number(query.get("page") ?? 0);
  const last = Math.max(0, Math.ceil(data.questions / data.page_size) - 1);
  return h("div", {}, h("h1", {}, "Battery"), filters(data, query, to),
    h("p", { class: "muted" }, `${count(data.questions)} questions`,
      query.getAll("player").length === 2 ? " that both players were asked" : ""),
    data.rows.length ? h("ol", { class: "groups" }, data.rows.map(question))
      : empty("No question passes these filters", "Choose another section, task, outcome or player."),
    last ? pager(page, page < last, `Page ${count(page + 1)} of ${count(last + 1)}`,
      (next) => to({ page: String(next || "") })) : null);
}

function filters(data: BatteryPage, query: URLSearchParams,
  to: (values: Record<string, string | string[]>) => string): HTMLElement {
  const pick = (label: string, options: [string, string][], chosen: string,
    address: (value: string) => string): HTMLElement =>
    h("label", {}, `${label} `, h("select",
      { onchange: (event: Event) => go(address((event.currentTarget as HTMLSelectElement).value)) },
      [["", "any"] as [string, string], ...options].map(([value, text]) =>
        h("option", { value, selected: value === chosen }, text))));
  const field = ([name, label]: [string, string]): HTMLElement => {
    const chosen = query.get(name) ?? "";
    const counts = Object.entries({ ...(chosen ? { [chosen]: 0 } : {}), ...data.counts[name] }).sort();
    return pick(label, counts.filter(([value]) => value)
      .map(([value, number]) => [value, `${words(value)} (${count(number)})`]), chosen, (value) => to({ ...(name === "section" ? { task: "", outcome: "" } : {}), [name]: value }));
  };
  const [first = "", second = ""] = query.getAll("player");
  const players = data.players.map((name): [string, string] => [name, name]);
  return h("form", { class: "filters", role: "search" }, h("div", { class: "filter-line" }, FIELDS.map(field),
    pick("Player", players, first, (value) => to({ player: [value, second].filter((name) => value && name) })),
    first ? pick("beside", players.filter(([name]) => name !== first), second,
      (value) => to({ player: [first, value] })) : null));
}

function question(row: BatteryPage["rows"][number]): HTMLElement {
  return h("li", { class: "group-row" },
    row.fen ? h("span", { class: "mini" }, board(row.fen).element) : null,
    h("div", { class: "group-main" },
      h("div", { class: "group-head" }, h("b", { class: "row-link", tabindex: 0 }, visible(row.question)),
        h("span", {}, row.section), row.task ? h("span", {}, words(row.task)) : null),
      h("div", { class: "beside" }, row.answers.map((answer) => h("div", {},
        h("div", { class: "group-head" }, h("b", {}, visible(answer.player)), h("span", {}, words(answer.outcome)),
          answer.move ? h("code", {}, visible(answer.move)) : null,
          answer.regret === null ? null : h("span", {}, `regret ${fixed(answer.regret, 3)}`),
          answer.tokens ? h("span", {}, `${count(answer.tokens)} tokens`) : null),
        answer.text ? modelText(answer.text) : null)))));
}
