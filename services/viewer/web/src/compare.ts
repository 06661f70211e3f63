// The same positions in other versions and runs, and the same answers under another reward.

import { filterOf } from "./answers";
import { type Comparison, type Curves, get, type Group, Problem, type Rescored } from "./api";
import { board } from "./board";
import { chart, CURVES, overlaid } from "./chart";
import { count, empty, h, percent, short, signed, visible, words } from "./dom";
import { chip, grade, groupRow, key, indexing, pager, section, tile } from "./parts";
import { changed, go, path, type Route } from "./route";

export async function position({ run, query }: Route, signal: AbortSignal): Promise<HTMLElement> {
  type History = { runs: string[]; indexing: string[]; groups: Group[] };
  const { runs, groups, ...data } = await get<History>(`runs/${run}/history?${query}`, signal);
  const name = query.get("position") ?? "";
  const series = [...new Set(groups.map((group) => group.run))].map((each) => {
    const mine = groups.filter((group) => group.run === each);
    return { key: each, label: each, dotted: false, x: mine.map((group) => group.version),
      y: mine.map((group) => group.reward_mean) };
  });
  return h("div", {},
    h("h1", {}, "Position ", h("code", {}, visible(name))),
    h("p", { class: "muted" },
      `The groups on it, 200 at most, in the runs that were opened here: ${runs.join(", ")}. Open another run to include it. A feed repeats positions only with `,
      h("code", {}, "--max-positions"), "."),
    indexing(data.indexing, signal),
    groups.length > 1 ? h("div", { class: "charts" },
      chart({ title: "Mean reward, by version", low: null, high: null, series })) : null,
    groups.length ? h("ol", { class: "groups" }, groups.map((each) => groupRow(each, true)))
      : empty("No group on this position", "The runs that were opened here have none."));
}

export async function compare({ run, query }: Route, signal: AbortSignal): Promise<HTMLElement> {
  const names = (await get<{ name: string }[]>("runs", signal)).map((each) => each.name);
  const other = query.get("with") ?? "";
  const submit = (event: Event): void => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.currentTarget as HTMLFormElement)) as Record<string, string>;
    go(path(run, "compare", "", changed(query, { ...values, page: "" })));
  };
  const pick = h("select", { name: "with", "aria-label": "Other run",
    onchange: (event: Event) => (event.currentTarget as HTMLSelectElement).form?.requestSubmit() },
    h("option", { value: "" }, "choose a run"),
    names.map((name) => h("option", { value: name, selected: name === other }, name === run ? "other versions of this run" : name)));
  const versions = (side: string, label: string): HTMLElement =>
    h("span", { class: "versions" }, " versions ", ["min", "max"].map((bound) => h("input", { name: `${side}_${bound}`, type: "number", min: 0,
      value: query.get(`${side}_${bound}`) ?? "", placeholder: bound === "min" ? "from" : "to",
      "aria-label": `${label}, versions ${bound === "min" ? "from" : "to"}` })));
  const head = [h("h1", {}, "Compare"),
    h("form", { class: "choice", onsubmit: submit }, h("b", {}, run), versions("first", run), " with ", pick,
      versions("second", other || "the other"), h("button", {}, "Compare"), " on the positions that both have")];
  if (!other) return h("div", {}, head,
    empty("Two runs, the same positions",
    "Runs with the same games and seed are fed the same positions in the same order. A run meets a position again, in another version, only with `--max-positions`."));
  const page = Number(query.get("page") ?? 0);
  const [data, first, second] = await Promise.all([
    get<Comparison>(`runs/${run}/compare/${encodeURIComponent(other)}?${changed(query, { with: "" })}`, signal),
    get<Curves>(`runs/${run}/curves`, signal),
    get<Curves>(`runs/${encodeURIComponent(other)}/curves`, signal),
  ]);
  const top = [head, indexing(data.indexing, signal)];
  if (data.empty.length) return h("div", {}, top,
    empty(`No answers of ${data.empty.join(" and ")}`, "There are none in the archive."));
  if (!data.positions) return h("div", {}, top,
    empty("No position in common", "These runs were fed other positions."));
  const sure = data.margin !== null && Math.abs(data.difference ?? 0) > data.margin;
  return h("div", {}, top,
    h("div", { class: "tiles wide" }, tile("positions", count(data.positions)), tile(run, signed(data.first, 3)),
      tile(other, signed(data.second, 3)),
      tile("difference", `${signed(data.difference, 3)} ± ${short(data.margin)}`, "95% interval over positions")),
    h("p", { class: "muted" },
      sure ? "The interval does not contain 0. " : "The interval contains 0: this is no difference yet. ",
      "Rewards compare only under the same scheme, and versions differ from row to row."),
    other === run ? null : section("Curves",
      h("div", { class: "charts narrow" }, first.training.filter(({ title }) => CURVES.includes(title))
        .map((panel) => chart(overlaid(panel, second, other)))),
      h("p", { class: "actions" }, h("a", { href: path(run, "training", "", { with: other }) }, "All curves of both"))),
    h("h2", {}, "Positions, the largest differences first"),
    key(),
    h("ol", { class: "groups" }, data.rows.map((row) => h("li", { class: "group-row" },
      h("a", { href: path(run, "position", "", { position: row.position, fen: row.fen }), class: "mini",
        "aria-label": `Position ${row.position}` }, board(row.fen).element),
      h("div", { class: "group-main" },
        h("div", { class: "group-head" }, h("code", {}, row.position), h("b", {}, signed(row.second - row.first, 3))),
        h("div", { class: "chips" },
          h("a", { class: "chip plain row-link", href: path(run, "groups", row.first_id) },
            h("span", {}, `${run} v${row.first_version}`), h("small", {}, signed(row.first))),
          (row.first_answers ?? []).map((answer) => chip(run, row.first_id, answer))),
        h("div", { class: "chips" },
          h("a", { class: "chip plain", href: path(other, "groups", row.second_id) },
            h("span", {}, `${other} v${row.second_version}`), h("small", {}, signed(row.second))),
          (row.second_answers ?? []).map((answer) => chip(other, row.second_id, answer))))))),
    pager(page, (page + 1) * data.page_size < data.positions, "", (number) =>
      path(run, "compare", "", changed(query, { page: String(number || "") }))));
}

const CHANGES: Record<string, string> = {
  kept: "the same sign",
  flipped: "the other sign",
  silenced: "no effect any more",
  awakened: "an effect only now",
};
const SCHEMES = ["delta", "best", "accuracy", "delta+0.1*format", "delta+0.2*length(200)"];

export async function rescore({ run, query }: Route, signal: AbortSignal): Promise<HTMLElement> {
  const scheme = query.get("scheme") ?? "best";
  const filter = filterOf(query);
  const submit = (event: Event): void => {
    event.preventDefault();
    const value = new FormData(event.currentTarget as HTMLFormElement).get("scheme");
    go(path(run, "rescore", "", changed(query, { scheme: String(value) })));
  };
  const head = [
    h("h1", {}, "Rescore"),
    h("form", { class: "choice", onsubmit: submit },
      h("label", {}, "Scheme ", h("input", { name: "scheme", value: scheme, list: "schemes", class: "wide-input" })),
      h("datalist", { id: "schemes" }, SCHEMES.map((value) => h("option", { value }))),
        h("button", { class: "primary" }, "Rescore")),
    h("p", { class: "muted" },
      `The newest 2,000 groups${filter.size ? ` of the view “${decodeURIComponent(filter.toString()).replaceAll("&", ", ")}”` : ""}, by the win probabilities in the archive. `, h("a", { href: path(run, "answers", "", filter) }, "Choose other answers")),
  ];
  let data: Rescored;
  try {
    data = await get<Rescored>(`runs/${run}/rescore?${changed(filter, { scheme })}`, signal);
  } catch (error) {
    if (signal.aborted || !(error instanceof Problem)) throw error;
    return h("div", {}, head, h("p", { class: "notice", role: "alert" }, error.message));
  }
  return h("div", {}, head,
    h("div", { class: "tiles wide" }, tile("answers", count(data.answers)),
      Object.entries(CHANGES).map(([name, meaning]) =>
      tile(`advantages with ${meaning}`, data.answers ? percent(data.signs[name as "kept"] / data.answers, 1) : "–",
        count(data.signs[name as "kept"])))),
    data.answers ? h("p", {}, `Under ${data.scheme}, ${count(data.answers - data.signs.kept)} of ${count(data.answers)} advantages in ${count(data.groups)} groups change. ${
      data.rows.length ? "The groups with the most changes:" : ""}`) : null,
    data.left_out ? h("p", { class: "notice" },
      `${count(data.left_out)} groups are left out: the archive has no win probabilities of them.`) : null,
    data.rows.length
      ? h("ol", { class: "groups" }, data.rows.map((row) => h("li", { class: "group-row" },
          h("a", { href: path(run, "groups", row.id), class: "mini", "aria-label": `Group ${row.id}` },
            board(row.fen).element),
          h("div", { class: "group-main" },
            h("div", { class: "group-head" },
              h("a", { class: "strong row-link", href: path(run, "groups", row.id) }, `v${row.version}`),
              h("span", {}, `${row.answers.filter((answer) => answer.change !== "kept").length} of ${row.answers.length} change`)),
            h("div", { class: "chips" }, row.answers.map((answer) =>
              h("a", { class: `chip ${answer.change === "kept" ? "faded " : ""}${grade(answer.outcome, -answer.reward)}`, href: path(run, "groups", row.id, { answer: String(answer.i) }), title: `advantage with ${CHANGES[answer.change]}` },
                h("span", {}, answer.san ?? words(answer.outcome)),
                  h("small", {}, `${signed(answer.reward)} → ${signed(answer.rescored)}`),
                  answer.change === "kept" ? null : h("em", {}, CHANGES[answer.change] ?? ""))))))))
      : empty("No advantage changes its sign", "On these answers, both schemes teach the same."));
}
