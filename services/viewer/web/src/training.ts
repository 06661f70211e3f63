// How a run goes: signs of collapse, strength of versions, curves.

import { type Collapse, type Curves, get, type Panel } from "./api";
import { chart } from "./chart";
import { empty, h } from "./dom";
import { section } from "./parts";
import { go, path, type Route } from "./route";

const PIECES: Record<string,
  string> = { P: "pawns", N: "knights", B: "bishops", R: "rooks", Q: "queens", K: "the king" };
const SERIES: [string, string][] = [
  ["distinct_answers", "distinct answers"],
  ["distinct_moves", "distinct moves"],
  ["zero_variance", "groups of equal rewards"],
];

/** Panels of the metrics that are signs of collapse, too. */
const SIGNS = ["Entropy, nats per token", "Exploration, shares"];

export async function training({ run, query }: Route, signal: AbortSignal): Promise<HTMLElement> {
  const all = query.has("all");
  const [curves, collapse] = await Promise.all([
    get<Curves>(`runs/${run}/curves${all ? "?all=true" : ""}`, signal),
    get<Collapse>(`runs/${run}/collapse`, signal),
  ]);
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
          "By version, from the archive. Click on a version to read its answers. Lines that fall together, or a piece far from the engine's share, are signs."),
          h("div", { class: "charts narrow" }, [...panels, ...signs, ...pieces].map((panel) => chart(panel, open)))]
        : empty("No groups in the archive yet", "They appear here when the archive has written its first file.")),
    curves.strength.length
      ? section("Strength over versions", h("div", { class: "charts" }, curves.strength.map((panel) => chart(panel))))
      : section("Strength over versions",
        empty("No version was evaluated while it trained", "`rookery up --evaluate-every 25` does so.")),
    section("Curves",
      curves.training.length
        ? [h("p", {}, all ? h("a", { href: path(run, "training") }, "Main metrics")
          : h("a", { href: path(run, "training", "", { all: "1" }) }, "All metrics")),
          h("div", { class: "charts" },
            curves.training.filter((panel) =>
            !signs.includes(panel) && (!byPiece || !panel.series.some(({ key }) => key.startsWith("moves_"))))
              .map((panel) => chart(panel)))]
        : empty("No steps yet", "The trainer writes metrics.jsonl with its first step.")));
}
