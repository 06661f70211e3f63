// Pieces that several views share: tiles, badges, the row of a group, filters in words.

import { type Answer, type Group, token } from "./api";
import { board } from "./board";
import { count, fixed, h, percent, signed, words } from "./dom";
import { go, path } from "./route";

export const tile = (label: string, value: string, hint = ""): HTMLElement =>
  h("div", { class: "tile", title: hint || null }, h("span", {}, label), h("b", {}, value));

/** Where the token is entered that replay and play need. */
export const tokenField = (): HTMLElement =>
  h("label", {}, "Token ", h("input", { type: "password", value: token.get(), autocomplete: "off",
    onchange: (event: Event) => token.set((event.currentTarget as HTMLInputElement).value) }));

export const section = (title: string, ...children: Parameters<typeof h>[2][]): HTMLElement =>
  h("section", {}, h("h2", {}, title), ...children);

export function table(headers: string[], rows: (Node | string)[][], label: string): HTMLElement {
  return h("div", { class: "table", tabindex: 0, role: "region", "aria-label": label },
    h("table", {},
      h("thead", {}, h("tr", {}, headers.map((header) => h("th", { scope: "col" }, header)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))));
}

/** How good an answer is, in four steps that colour and shape both tell. */
export function grade(outcome: string, regret: number | null): "best" | "good" | "poor" | "bad" | "illegal" | "unrated" {
  if (outcome !== "legal") return "illegal";
  if (regret === null) return "unrated";
  if (regret < 0.005) return "best";
  return regret < 0.1 ? "good" : regret < 0.3 ? "poor" : "bad";
}

export const GRADES: [string, string][] = [
  ["best", "best move"],
  ["good", "regret below 0.1"],
  ["poor", "below 0.3"],
  ["bad", "0.3 or more"],
  ["illegal", "no legal move"],
  ["unrated", "legal, without a regret"],
];

export const key = (): HTMLElement =>
  h("ul", { class: "key", "aria-label": "Colours of answers" },
    GRADES.map(([name, meaning]) => h("li", {}, h("i", { class: `swatch ${name}` }), meaning)));

export function chip(run: string, group: string, answer: Pick<Answer,
  "i" | "turn" | "outcome" | "regret" | "reward" | "san" | "matched">): HTMLElement {
  const what = answer.san ?? words(answer.outcome);
  return h("a", {
    class: `chip ${grade(answer.outcome, answer.regret)} ${answer.matched ? "" : "faded"}`,
    href: path(run, "groups", group, { answer: String(answer.i) }),
    title: `Answer ${answer.i + 1}${answer.turn ? `, turn ${answer.turn + 1}` : ""}: ${what}, reward ${signed(answer.reward, 3)}`,
  }, h("span", {}, what), h("small", {}, signed(answer.reward)));
}

/** The answers by episode; those of one turn together. */
export function episodes<A extends { episode: number; turn: number }>(answers: A[]): A[][] {
  if (!answers.some(({ turn }) => turn)) return [answers];
  const list: A[][] = [];
  for (const answer of answers) (list[answer.episode] ??= []).push(answer);
  return list;
}

/** A group in a list: its board, what is known of it, its answers; `named` by its run. */
export function groupRow(group: Group, named = false): HTMLElement {
  const { run } = group;
  const href = path(run, "groups", group.id);
  return h("li", { class: "group-row" },
    h("a", { href, class: "mini", "aria-label": `Group ${group.id}` }, board(group.fen).element),
    h("div", { class: "group-main" },
      h("div", { class: "group-head" },
        named && h("b", {}, run),
        h("a", { href, class: "strong row-link", title: "The version that answered" }, `v${group.version}`),
        h("span", {}, group.phase),
        group.kind !== "move" && h("span", {}, group.kind),
        group.best && h("span", {}, "best ", h("b", {}, group.best)),
        group.win_before !== null && h("span", { title: "Win probability of the side to move, by the engine" }, `win ${percent(group.win_before)}`),
        h("span", { title: "The step that trained on it, and how many versions it was behind" }, group.age === null ? "not trained" : `step ${group.step}, age ${group.age}`),
        h("span", { class: "spread", title: "Mean and standard deviation of the rewards of its answers" }, `mean ${signed(group.reward_mean)}, spread ${fixed(group.reward_std, 2)}`)),
      episodes(group.answers).map((turns) => h("div", { class: "chips" },
        turns[0]?.result && h("b", { class: "result" }, turns[0].result),
        turns.map((answer) => chip(run, group.id, answer))))));
}

/** Links to the page before and after, with a text between them. */
export function pager(page: number, more: boolean, text: string, to: (page: number) => string): HTMLElement {
  const link = (there: boolean, number: number, label: string): HTMLElement =>
    there ? h("a", { href: to(number) }, label) : h("span", { class: "off" }, label);
  return h("nav", { class: "pager", "aria-label": "Pages" },
    link(page > 0, page - 1, "← Previous"), h("span", {}, text), link(more, page + 1, "Next →"));
}

export function skeleton(): HTMLElement {
  return h("div", { class: "skeleton", role: "status", "aria-label": "Loading" },
    h("i", {}), h("i", {}), h("i", {}), h("i", {}));
}

/** What is wrong with the files of a run. */
export const problem = (text: string): HTMLElement | null =>
  text ? h("p", { class: "notice", role: "status" }, `The archive: ${text}.`) : null;

/** Says that runs are still being indexed, and draws the view again until they are. */
export function indexing(runs: string[], signal: AbortSignal): HTMLElement | null {
  if (!runs.length) return null;
  setTimeout(() => signal.aborted || go(location.href, true), 1000);
  return h("p", { class: "notice", role: "status" }, `Still being indexed, so only a part is shown: ${runs.join(", ")}.`);
}

export const progress = (files: number, of: number): HTMLElement | null =>
  files < of
    ? h("p", { class: "notice", role: "status" },
        `The archive is being indexed: ${count(files)} of ${count(of)} files so far. `,
        h("progress", { value: files, max: of, "aria-label": "Indexed files" }))
    : null;
