// How a run goes: signs of collapse, strength of versions, curves.

import { type Collapse, type Curves, get, type Panel } from "./api";
import { chart, overlaid } from "./chart";
import { count, empty, h, words } from "./dom";
import { section } from "./parts";
import { changed, go, path, type Route } from "./route";

const PIECES: Record<string,
  string> = { P: "pawns", N: "knights", B: "bishops", R: "rooks", Q: "queens", K: "the king" };
const SERIES: [string, string][] = [
  ["distinct_answers", "distinct answers"],
  ["distinct_moves", "distinct moves"],
  ["zero_variance", "groups of equal rewards"],
];

const MEASURES: Record<string, string> = {
  reward: "Rewards of answers",
  advantage: "Advantages of answers",
  length: "Tokens of answers",
  surprise: "Surprise of answers, nats a token",
  entropy: "Entropy by position, nats a token",
};

/** Panels of the metrics that are signs of collapse, too. */
const SIGNS = ["Entropy, nats per token", "Exploration, shares"];

export async function training({ run, query }: Route, signal: AbortSignal): Promise<HTMLElement> {
  const all = query.has("all");
  const other = query.get("with") ?? "";
  const [runs, others, curves, collapse] = await Promise.all([
    get<{ name: string }[]>("runs", signal),
    other ? get<Curves>(`runs/${encodeURIComponent(other)}/curves${all ? "?all=true" : ""}`, signal) : null,
    get<Curves>(`runs/${run}/curves${all ? "?all=true" : ""}`, signal),
    get<Collapse>(`runs/${run}/collapse`, signal),
  ]);
  const look = { smooth: Number(query.get("smooth") ?? 1), log: query.has("log") };
  const drawn = (panel: Panel): HTMLElement => chart(others ? overlaid(panel, others, other) : panel, undefined, look);
  const to = (values: Record<string, string>): void => go(path(run, "training", "", changed(query, values)));
  const pick = (name: string, label: string, options: [string, string][]): HTMLElement =>
    h("label", {}, `${label} `, h("select", { onchange: (event: Event) => to({ [name]: (event.currentTarget as HTMLSelectElement).value }) },
      options.map(([value, text]) => h("option", { value, selected: value === (query.get(name) ?? "") }, text))));
  const controls = h("p", { class: "choice" },
    pick("with", "Another run over it", [["", "none"], ...runs.filter(({ name }) => name !== run).map(({ name }): [string, string] => [name, name])]),
    pick("smooth", "Smoothing", [["", "none"], ["5", "5 steps"], ["20", "20 steps"], ["100", "100 steps"]]),
    pick("log", "Scale", [["", "linear"], ["1", "logarithmic"]]),
    h("a", { href: path(run, "training", "", changed(query, { all: all ? "" : "1" })) }, all ? "Main metrics" : "All metrics"));
  const line = (label: string, y: (number | null)[], dotted = false) =>
    ({ key: label, label, dotted, x: collapse.versions, y });
  const byPiece = collapse.versions.length > 0; // each piece then has a chart of its own
  const open = (version: number): void =>
    go(path(run, "answers", "", { version_min: String(version), version_max: String(version) }));
  const panels: Panel[] = [
    { title: "Distinct in a group, share", low: 0, high: 1.03,
      series: SERIES.map(([name, label]) => line(label, collapse.series[name] ?? [])) },
    { title: "Surprise, nats a token", low: 0, high: null,
      series: [line("policy", collapse.series["surprise"] ?? [])] },
  ];
  const moving = Object.entries(MEASURES).map(([name, title]): Panel => ({
    title, low: null, high: null, ...(collapse.histograms[name] ? { bars: collapse.histograms[name] } : {}),
    series: [["median", 1], ["10% are below", 0], ["90% are below", 2]].map(([label, place]) =>
      line(String(label), collapse.quantiles[name]?.[Number(place)] ?? [], label !== "median")),
  }));
  const outcomes: Panel = { title: "Outcomes, share", low: 0, high: 1.03,
    series: Object.entries(collapse.outcomes).sort(([a], [b]) => Number(b === "legal") - Number(a === "legal")).map(([name, shares]) => line(words(name), shares)) };
  const pieces = Object.entries(PIECES).map(([piece, name]): Panel => ({
    title: `Moves by ${name}, share`, low: 0, high: null,
    series: [line("policy", collapse.pieces[piece] ?? []), line("engine", collapse.best_pieces[piece] ?? [], true)],
  }));
  const signs = byPiece ? curves.training.filter((panel) => SIGNS.includes(panel.title)) : [];
  return h("div", {},
    h("h1", {}, "Training"),
    section("Is it collapsing?",
      collapse.versions.length
        ? [h("p", { class: "muted" },
          "By version, from the archive and the trainer's metrics. Click on a version to read its answers. Lines that fall together, or a piece far from the engine's share, are signs. In histograms, a column is a version: the darker, the more of its answers have the value. The entropy by position is the mean surprise of all tokens of its answers.",
          collapse.every > 1 ? ` The histograms are of one group in ${count(collapse.every)}.` : null),
          h("div", { class: "charts narrow" }, [...panels, outcomes, ...moving, ...signs, ...pieces].map((panel) => chart(panel, open)))]
        : empty("No groups in the archive yet", "They appear here when the archive has written its first file.")),
    curves.strength.length
      ? section("Strength over versions", h("div", { class: "charts" }, curves.strength.map(drawn)))
      : section("Strength over versions",
        empty("No version was evaluated while it trained", "`rookery up --evaluate-every 25` does so.")),
    section("Curves",
      curves.training.length
        ? [controls, h("p", { class: "muted" }, "Drag over a chart to zoom, double click to see all."),
          h("div", { class: "charts" },
            curves.training.filter((panel) =>
            !signs.includes(panel) && (!byPiece || !panel.series.some(({ key }) => key.startsWith("moves_"))))
              .map(drawn))]
        : empty("No steps yet", "The trainer writes metrics.jsonl with its first step.")));
}
