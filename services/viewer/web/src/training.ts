// How a run goes: overview, curves, signs of collapse, strength, two runs, other rewards, dead letters.

import { type Collapse, type Comparison, type DeadLetter, get, type Group, type Overview, type Panel, post, type Rescored, type Step, type Summary, token } from "./api";
import { filterOf } from "./answers";
import { board } from "./board";
import { chart, histogram } from "./chart";
import { count, empty, h, percent, short, signed, visible, words } from "./dom";
import { grade, groupRow, progress, section, table, tile } from "./parts";
import { changed, go, path, type Route } from "./route";

interface Curves {
  training: Panel[];
  strength: Panel[];
}

export async function runs(_: Route, signal: AbortSignal): Promise<HTMLElement> {
  const all = await get<{ name: string; last_step: Step }[]>("runs", signal);
  if (!all.length) return h("div", {}, h("h1", {}, "Runs"), empty("No runs yet", "Start one with `rookery demo`: it appears here with its first step."));
  const figure = (step: Step, key: string, text: (value: number) => string): string => (key in step ? text(step[key] ?? 0) : "–");
  return h("div", {},
    h("h1", {}, "Runs"),
    table(["run", "step", "reward", "legal moves", "regret", "entropy", "last step"],
      all.map(({ name, last_step: step }) => [
        h("a", { href: path(name), class: "strong row-link" }, name),
        figure(step, "step", count), figure(step, "reward", (value) => signed(value, 3)), figure(step, "legal_rate", (value) => percent(value, 1)),
        figure(step, "regret", short), figure(step, "entropy", short), figure(step, "time", (value) => new Date(value * 1000).toISOString().slice(0, 16).replace("T", " ")),
      ]), "Runs"));
}

export async function overview({ run }: Route, signal: AbortSignal): Promise<HTMLElement> {
  const [data, summary, curves] = await Promise.all([
    get<Overview>(`runs/${run}`, signal),
    get<Summary>(`runs/${run}/summary`, signal),
    get<Curves>(`runs/${run}/curves`, signal),
  ]);
  const step = data.last_step;
  const wanted = ["Reward", "Share of answers", "Regret of legal moves", "Entropy, nats per token"];
  return h("div", {},
    h("h1", {}, run),
    progress(data.indexed.files, data.indexed.of),
    h("div", { class: "tiles wide" },
      tile("step", count(step["step"] ?? 0)), tile("reward", signed(step["reward"], 3)), tile("legal moves", percent(step["legal_rate"], 1)),
      tile("regret", short(step["regret"])), tile("entropy", short(step["entropy"]), "nats per token"), tile("equal rewards", percent(step["zero_variance_share"]), "groups without variance: nothing to learn from")),
    section("All answers, by reward",
      summary.all_answers
        ? histogram(summary, () => false, (low, high) => path(run, "answers", "", { reward_min: low, reward_max: high }))
        : empty("No answers in the archive yet", "The archive writes a file every minute, or when 256 groups are complete.")),
    curves.training.length ? section("Training", h("div", { class: "charts narrow" }, curves.training.filter((panel) => wanted.includes(panel.title)).map((panel) => chart(panel)))) : null,
    account(data),
    evaluation(data));
}

function account({ account: known, archive, dropped }: Overview): HTMLElement {
  const lost = Object.entries(known?.counts.dropped ?? dropped).filter(([, value]) => value);
  const dead = known ? Object.values(known.counts.dead).reduce((sum, each) => sum + each, 0) : null;
  return section("Account of the groups", h("div", { class: "tiles wide" },
    known ? tile("generated", count(known.counts.generated)) : null,
    tile("trained", count(known?.counts.trained ?? archive.trained)),
    lost.length ? lost.map(([reason, value]) => tile(`dropped: ${words(reason)}`, count(value))) : tile("dropped", "0"),
    dead !== null ? tile("dead", count(dead)) : null,
    known ? tile("in the stream", count(known.traces)) : null,
    tile("in the archive", count(archive.groups)),
    known ? tile("astray", count(known.astray), "generated = trained + dropped + dead + in the stream") : null),
    known ? null : h("p", { class: "muted" }, "From the files of the run: its Redis is not up."));
}

function evaluation({ evaluation: metrics }: Overview): HTMLElement | null {
  const names = Object.keys(metrics).filter((name) => ["legal_rate", "legal_rate_greedy", "regret_legal", "regret_legal_greedy", "action_accuracy", "action_accuracy_greedy"].includes(name));
  if (!names.length) return null;
  const players = Object.keys(metrics[names[0] ?? ""] ?? {});
  return section("Held-out positions", table(["", ...players],
    names.map((name) => [words(name), ...players.map((player) => {
      const found = metrics[name]?.[player];
      return found ? `${short(found.mean)}${found.ci95 ? ` [${found.ci95.map(short).join(", ")}]` : ""}` : "–";
    })]), "Evaluation on held-out positions"));
}

const PIECES: Record<string, string> = { P: "pawns", N: "knights", B: "bishops", R: "rooks", Q: "queens", K: "the king" };
const SERIES: [string, string][] = [
  ["distinct_answers", "distinct answers"],
  ["distinct_moves", "distinct moves"],
  ["zero_variance", "groups of equal rewards"],
];

export async function training({ run, query }: Route, signal: AbortSignal): Promise<HTMLElement> {
  const all = query.has("all");
  const [curves, collapse] = await Promise.all([
    get<Curves>(`runs/${run}/curves${all ? "?all=true" : ""}`, signal),
    get<Collapse>(`runs/${run}/collapse`, signal),
  ]);
  const line = (label: string, y: (number | null)[], dotted = false) => ({ key: label, label, dotted, x: collapse.versions, y });
  const byPiece = collapse.versions.length > 0; // each piece then has a chart of its own
  const open = (version: number): void =>
    go(path(run, "answers", "", { version_min: String(version), version_max: String(version) }));
  const panels: Panel[] = [
    { title: "Distinct in a group, share", low: 0, high: 1.03, series: SERIES.map(([name, label]) => line(label, collapse.series[name] ?? [])) },
    { title: "Surprise, nats a token", low: 0, high: null, series: [line("policy", collapse.series["surprise"] ?? [])] },
  ];
  const pieces = Object.entries(PIECES).map(([piece, name]): Panel => ({
    title: `Moves by ${name}, share`, low: 0, high: null,
    series: [line("policy", collapse.pieces[piece] ?? []), line("engine", collapse.best_pieces[piece] ?? [], true)],
  }));
  return h("div", {},
    h("h1", {}, "Training"),
    section("Is it collapsing?",
      collapse.versions.length
        ? [h("p", { class: "muted" }, "By version, from the archive. Click on a version to read its answers. Lines that fall together, or a piece far from the engine's share, are signs."),
          h("div", { class: "charts" }, [...panels, ...pieces].map((panel) => chart(panel, open)))]
        : empty("No groups in the archive yet", "They appear here when the archive has written its first file.")),
    curves.strength.length
      ? section("Strength over versions", h("div", { class: "charts" }, curves.strength.map((panel) => chart(panel))))
      : section("Strength over versions", empty("No version was evaluated while it trained", "`rookery up --evaluate-every 25` does so.")),
    section("Curves",
      curves.training.length
        ? [h("p", {}, all ? h("a", { href: path(run, "training") }, "Main metrics") : h("a", { href: path(run, "training", "", { all: "1" }) }, "All metrics")),
          h("div", { class: "charts" }, curves.training.filter((panel) => !byPiece || !panel.series.some(({ key }) => key.startsWith("moves_"))).map((panel) => chart(panel)))]
        : empty("No steps yet", "The trainer writes metrics.jsonl with its first step.")));
}

export async function position({ run, query }: Route, signal: AbortSignal): Promise<HTMLElement> {
  const { groups } = await get<{ groups: Group[] }>(`runs/${run}/history?${query}`, signal);
  const name = query.get("position") ?? "";
  const series = [...new Set(groups.map((group) => group.run))].map((each) => {
    const mine = groups.filter((group) => group.run === each);
    return { key: each, label: each, dotted: false, x: mine.map((group) => group.version), y: mine.map((group) => group.reward_mean) };
  });
  return h("div", {},
    h("h1", {}, "Position ", h("code", {}, visible(name))),
    h("p", { class: "muted" }, "Every group on it, in all runs that were opened here. A feed repeats positions only with --max-positions or --repeat-share."),
    groups.length > 1 ? h("div", { class: "charts" }, chart({ title: "Mean reward, by version", low: null, high: null, series })) : null,
    groups.length ? h("ol", { class: "groups" }, groups.map((each) => groupRow(each, true))) : empty("No group on this position", "The runs that were opened here have none."));
}

export async function compare({ run, query }: Route, signal: AbortSignal): Promise<HTMLElement> {
  const names = (await get<{ name: string }[]>("runs", signal)).map((each) => each.name).filter((name) => name !== run);
  const other = query.get("with") ?? "";
  const pick = h("select", { "aria-label": "Other run", onchange: (event: Event) => go(path(run, "compare", "", { with: (event.currentTarget as HTMLSelectElement).value })) },
    h("option", { value: "" }, "choose a run"), names.map((name) => h("option", { value: name, selected: name === other }, name)));
  const head = [h("h1", {}, "Compare"), h("p", { class: "choice" }, h("b", {}, run), " with ", pick, " on the positions that both have")];
  if (!other) return h("div", {}, head, empty("Two runs, the same positions", "Runs with the same games and seed are fed the same positions in the same order."));
  const page = Number(query.get("page") ?? 0);
  const data = await get<Comparison>(`runs/${run}/compare/${encodeURIComponent(other)}?page=${page}`, signal);
  if (!data.positions) return h("div", {}, head, empty("No position in common", "These runs have other games or another seed. While a run is being indexed, look again in a moment."));
  const sure = data.margin !== null && Math.abs(data.difference ?? 0) > data.margin;
  return h("div", {}, head,
    h("div", { class: "tiles wide" }, tile("positions", count(data.positions)), tile(run, signed(data.first, 3)), tile(other, signed(data.second, 3)),
      tile("difference", `${signed(data.difference, 3)} ± ${short(data.margin)}`, "95% interval over positions")),
    h("p", { class: "muted" }, sure ? "The interval does not contain 0. " : "The interval contains 0: this is no difference yet. ", "Rewards compare only under the same scheme, and versions differ from row to row."),
    h("ol", { class: "groups" }, data.rows.map((row) => h("li", { class: "group-row" },
      h("a", { href: path(run, "position", "", { position: row.position, fen: row.fen }), class: "mini", "aria-label": `Position ${row.position}` }, board(row.fen).element),
      h("div", { class: "group-main" },
        h("div", { class: "group-head" }, h("code", {}, row.position), h("b", {}, signed(row.second - row.first, 3))),
        h("div", { class: "chips" },
          h("a", { class: "chip plain row-link", href: path(run, "groups", row.first_id) }, h("span", {}, `${run} v${row.first_version}`), h("small", {}, signed(row.first))),
          h("a", { class: "chip plain", href: path(other, "groups", row.second_id) }, h("span", {}, `${other} v${row.second_version}`), h("small", {}, signed(row.second)))))))),
    h("nav", { class: "pager", "aria-label": "Pages" },
      page ? h("a", { href: path(run, "compare", "", changed(query, { page: page > 1 ? String(page - 1) : "" })) }, "← Previous") : h("span", { class: "off" }, "← Previous"),
      data.rows.length === 40 ? h("a", { href: path(run, "compare", "", changed(query, { page: String(page + 1) })) }, "Next →") : h("span", { class: "off" }, "Next →")));
}

const CHANGES: Record<string, string> = { kept: "the same sign", flipped: "the other sign", silenced: "none any more", awakened: "a sign only now" };
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
    h("form", { class: "choice", onsubmit: submit }, h("label", {}, "Scheme ", h("input", { name: "scheme", value: scheme, list: "schemes", class: "wide-input" })),
      h("datalist", { id: "schemes" }, SCHEMES.map((value) => h("option", { value }))), h("button", { class: "primary" }, "Rescore")),
    h("p", { class: "muted" }, `The newest 2,000 groups${filter.size ? ` of the view “${decodeURIComponent(filter.toString()).replaceAll("&", ", ")}”` : ""}, by the win probabilities in the archive. `, h("a", { href: path(run, "answers", "", filter) }, "Choose other answers")),
  ];
  const data = await get<Rescored>(`runs/${run}/rescore?${changed(filter, { scheme })}`, signal);
  return h("div", {}, head,
    h("div", { class: "tiles wide" }, tile("answers", count(data.answers)), Object.entries(CHANGES).map(([name, meaning]) =>
      tile(`advantages with ${meaning}`, data.answers ? percent(data.signs[name as "kept"] / data.answers, 1) : "–", count(data.signs[name as "kept"])))),
    data.rows.length
      ? h("ol", { class: "groups" }, data.rows.map((row) => h("li", { class: "group-row" },
          h("a", { href: path(run, "groups", row.id), class: "mini", "aria-label": `Group ${row.id}` }, board(row.fen).element),
          h("div", { class: "group-main" },
            h("div", { class: "group-head" }, h("a", { class: "strong row-link", href: path(run, "groups", row.id) }, `v${row.version}`), h("span", {}, `${row.answers.filter((answer) => answer.change !== "kept").length} of ${row.answers.length} change`)),
            h("div", { class: "chips" }, row.answers.map((answer) =>
              h("a", { class: `chip ${answer.change === "kept" ? "faded " : ""}${grade(answer.outcome, -answer.reward)}`, href: path(run, "groups", row.id, { answer: String(answer.i) }), title: `advantage with ${CHANGES[answer.change]}` },
                h("span", {}, answer.san ?? words(answer.outcome)), h("small", {}, `${signed(answer.reward)} → ${signed(answer.rescored)}`), answer.change === "kept" ? null : h("em", {}, answer.change))))))))
      : empty("No advantage changes its sign", "On these answers, both schemes teach the same."));
}

export async function dead({ run }: Route, signal: AbortSignal): Promise<HTMLElement> {
  const letters = await get<DeadLetter[]>(`runs/${run}/dead`, signal);
  const replay = (letter: DeadLetter): HTMLElement => {
    const said = h("span", { role: "status" });
    const button = h("button", { onclick: async () => {
      try {
        const { stream } = await post<{ stream: string }>(`runs/${run}/dead/${letter.id}/replay`);
        button.remove();
        said.replaceChildren(`back in ${stream}`);
      } catch (error) {
        said.replaceChildren((error as Error).message);
      }
    } }, "Replay");
    return h("span", {}, token.get() ? button : h("span", { class: "muted" }, "needs the token"), " ", said);
  };
  return h("div", {}, h("h1", {}, "Dead letters"),
    letters.length
      ? table(["stream", "item", "reason", "entry", ""], letters.map((letter) => [letter.stream, h("code", {}, visible(letter.item)), h("span", { class: "reason" }, visible(letter.reason)), letter.entry, replay(letter)]), "Dead letters")
      : empty("No dead letters", "Every position and group of this run could be handled."));
}
