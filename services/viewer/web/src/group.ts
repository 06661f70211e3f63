// One group: the board with its arrows, and all answers side by side.

import { get, type Sentence, type Trace, type Verdict, type WholeGroup } from "./api";
import { arrow, board, mover, turnOf, type Brush, type DrawShape } from "./board";
import { LAST_LIST } from "./answers";
import { chart } from "./chart";
import { fixed, h, type Mark, modelText, percent, short, signed, visible, words } from "./dom";
import { episodes, grade } from "./parts";
import { changed, go, path, type Route } from "./route";

const MODES: [string, string][] = [
  ["", "Reasoning"],
  ["logprob", "Log-probability"],
  ["ratio", "Ratio"],
  ["advantage", "Advantage"],
];

export async function group(route: Route, signal: AbortSignal): Promise<HTMLElement> {
  const data = await get<WholeGroup>(`runs/${route.run}/groups/${encodeURIComponent(route.id)}`, signal);
  const mode = route.query.get("show") ?? "";
  const played = data.traces.some(({ turn }) => turn);
  const chosen = Number(route.query.get("answer") ?? (played ? 0 : -1));
  const turn = played ? data.traces[chosen] ?? data.traces[0] ?? null : null;
  // Of an episode of several turns, one is on the board; of answers to one position, all are.
  const group = turn ? [turn] : data.traces;
  const shown = board(turn?.real_fen ?? data.prompt.fen, { coordinates: true,
    orientation: turnOf((turn && data.traces.find(({ episode }) => episode === turn.episode)?.real_fen) ?? data.prompt.fen) });
  const best = group.find((trace) => trace.verdict.best)?.verdict.best ?? null;
  const show = (traces: Trace[]): void => shown.draw(shapes(traces, best?.uci ?? null, !!turn?.mirrored));
  const pick = (trace: Trace | null): void => show(trace ? [trace] : group);
  pick(data.traces[chosen] ?? null);
  const cards = data.traces.map((trace, index) => {
    const element = card(trace, data, index, route, mode, index === chosen);
    if (turn) return element;
    element.addEventListener("pointerenter", () => pick(trace));
    element.addEventListener("pointerleave", () => pick(data.traces[chosen] ?? null));
    return element;
  }).filter((_, index) => !turn || data.traces[index] === turn);
  const win = group.find((trace) => trace.verdict.win_before !== null)?.verdict;
  return h("div", { class: "group-view" },
    h("div", { class: "title" }, h("h1", {}, "Group ", h("code", {}, data.id)), neighbours(route)),
    h("p", { class: "fate" }, data.fate),
    h("div", { class: "group-columns" },
      h("aside", { class: "board-side" },
        h("div", { class: "board-frame" }, bar(win?.win_before ?? null), shown.element),
        h("p", { class: "under-board" }, h("b", {}, mover(turn?.real_fen ?? data.prompt.fen)),
          best && !turn?.mirrored ? [", best ", h("b", {}, best.san), ` (${evaluation(win)})`] : null,
          (turn ? turn.mirrored : data.prompt.fen !== data.position.fen) ? h("span", { class: "muted" }, turn ? " · the model sees it mirrored, with White to move" : " · mirrored, as the model sees it")
            : null),
        h("ul", { class: "key arrows" },
          [["best", "engine's best"], ["played", "played"], ["bad", "played, regret 0.3 or more"],
            ["named", "candidate"]].map(([name, label]) =>
            h("li", {}, h("i", { class: `swatch arrow-${name}` }), label ?? ""))),
        facts(data, route, turn?.real_fen ?? data.position.fen)),
      h("div", {},
        turn ? game(data, turn, route) : null,
        h("nav", { class: "modes", "aria-label": "What the text shows" }, MODES.map(([value, label]) =>
          h("a", { href: path(route.run, "groups", route.id, changed(route.query, { show: value })),
            "aria-current": value === mode ? "true" : null }, label))),
        legend(mode, data),
        h("div", { class: "cards" }, cards))));
}

/** A move on the board of the game, of one on a mirrored board. */
const unmirrored = (uci: string): string => uci.replace(/[1-8]/g, (rank) => String(9 - Number(rank)));

function shapes(traces: Trace[], best: string | null, mirrored: boolean): DrawShape[] {
  const drawn = new Map<string, Brush>();
  for (const trace of traces) for (const { uci } of trace.candidates) drawn.set(uci, "named");
  for (const { verdict } of traces)
    if (verdict.move) drawn.set(verdict.move.uci, (verdict.regret ?? 0) >= 0.3 ? "bad" : "played");
  if (best) drawn.set(best, "best");
  const order: Brush[] = ["named", "bad", "played", "best"];
  return [...drawn].sort((x, y) => order.indexOf(x[1]) - order.indexOf(y[1]))
    .map(([uci, name]) => arrow(mirrored ? unmirrored(uci) : uci, name));
}

/** Win probability of the side to move, as a bar beside the board. */
const bar = (win: number | null): HTMLElement | null =>
  win === null ? null : h("div",
    { class: "win-bar", role: "img", "aria-label": `Win probability ${percent(win)}`,
    title: `Win probability ${percent(win, 1)}`, "--win": win });

function evaluation(verdict: Verdict | undefined): string {
  const score = verdict?.eval_before;
  if (!score) return "no evaluation";
  return score.mate !== null ? `mate in ${score.mate}` : signed((score.cp ?? 0) / 100);
}

function card(trace: Trace, data: WholeGroup, index: number, route: Route, mode: string, chosen: boolean): HTMLElement {
  const { verdict, completion } = trace;
  const advantage = learned(trace);
  const href = path(route.run, "groups", route.id, changed(route.query, { answer: String(index) }));
  const change = verdict.win_before !== null && verdict.win_after !== null;
  return h("article", { class: `card answer ${chosen ? "chosen" : ""}`, id: `answer-${index}`,
    "aria-label": `Answer ${index + 1}` },
    trace.turn || data.traces[index + 1]?.turn ? h("p", { class: "muted turn" }, `Turn ${trace.turn + 1}`) : null,
    h("header", {},
      h("a", { class: "row-link number", href, "aria-label": `Answer ${index + 1}` }, index + 1),
      h("b", { class: `move ${grade(verdict.outcome, verdict.regret)}` }, (trace.mirrored && trace.turn + Number(!!data.traces[index + 1]?.turn) ? trace.played[0]?.san : null) ?? verdict.move?.san ?? words(verdict.outcome)),
      h("span", { class: "reward", title: "Reward: the sum of its terms, below" }, signed(verdict.reward, 3)),
      h("span", { class: `advantage ${advantage < 0 ? "minus" : advantage > 0 ? "plus" : ""}`, title: "Advantage: the reward beside those of its group, by the trainer's settings; above 0, the answer is made more probable" },
        trace.no_loss ? "no loss" : trace.advantage === null ? "A not known" : `A ${signed(advantage)}`)),
    change ? h("div", { class: "win-change", title: "Win probability before and after the move" },
      h("span", {}, percent(verdict.win_before)),
        h("i", { "--from": verdict.win_before ?? 0, "--to": verdict.win_after ?? 0 }),
        h("span", {}, percent(verdict.win_after))) : null,
    mode === "ratio" && !trace.ratios ? h("p", { class: "notice" }, withoutRatios(trace, data)) : null,
    mode && (mode !== "ratio" || trace.ratios) ? tokens(trace, mode) : modelText(completion.text, mode ? [] : marks(trace.sentences)),
    trace.observation ? h("div", { class: "observation" }, h("small", {}, "then"), modelText(trace.observation)) : null,
    h("footer", {},
      h("span", { title: "Length of the answer" }, `${completion.logprobs.length} tokens`),
      h("span", { title: "Mean negative log-probability, nats a token" }, `surprise ${short(trace.surprise)}`),
      completion.finish_reason !== "stop" ? h("span", { title: "Why the answer ended: length is the limit of tokens" }, `finished: ${completion.finish_reason}`) : null,
      verdict.regret !== null ? h("span", { title: "Win probability of the best move less that of this one" }, `regret ${short(verdict.regret)}`) : null,
      Object.entries(verdict.components).map(([name, value]) => h("span", { title: "A term of the reward" }, `${words(name)} ${signed(value, 3)}`)),
      trace.candidates.length ? h("span", { title: "Legal moves that the text names before its answer" }, `candidates ${trace.candidates.map((move) => move.san).join(" ")}`)
        : null));
}

/** The advantage of the whole answer; 0 where it is not known, or the answer carries no loss. */
const learned = (trace: Trace): number => trace.no_loss ? 0 : trace.advantage ?? 0;

/** Sentences by the truth of their claims. */
export function marks(sentences: Sentence[]): Mark[] {
  return sentences.map((sentence) => {
    const truths = sentence.claims.map((claim) => claim.true);
    const name = !sentence.read ? "unread" : truths.includes(false) ? "false" : truths.includes(true) ? "true" : "open";
    const said = sentence.claims.map((claim) => `${claim.concept}: ${claim.true ?? "open"}`).join(", ");
    return { start: sentence.start, end: sentence.end, class: `claim ${name}`,
      title: said ? `${name} (${said})` : name };
  });
}

/** The games of a group; an answer to one position is a game of one move. */
const pgn = (data: WholeGroup): string => [...new Set(data.traces.map(({ episode }) => episode))].map((index) => {
  const turns = data.traces.filter(({ episode }) => episode === index);
  const [, side, , , , number] = data.position.fen.split(" ");
  const first = 2 * (Number(number) - 1) + (side === "b" ? 1 : 0);
  const result = /: (1-0|0-1|1\/2-1\/2), /.exec(turns.at(-1)?.observation ?? "")?.[1] ?? "*";
  const moves = turns.flatMap(({ before, played }) => [...before, ...played]).map(({ san }, ply) => (first + ply) % 2 ? (ply ? san
    : `${Math.ceil((first + ply) / 2)}... ${san}`) : `${(first + ply) / 2 + 1}. ${san}`);
  const names = ["White", "Black"].map((colour) => `[${colour} "${sides(turns).includes(colour) ? `policy v${data.policy.number}` : "opponent"}"]`);
  return `[Event "Episode ${index + 1}"]\n${names.join("\n")}\n[Result "${result}"]\n[SetUp "1"]\n[FEN "${data.position.fen}"]\n\n${moves.join(" ")} ${result}\n`;
}).join("\n");

/** The colours that the policy has in an episode. */
const sides = (turns: Trace[]): string[] =>
  ["White", "Black"].filter((colour) => turns.some(({ real_fen }) => turnOf(real_fen) === colour.toLowerCase()));

/** An episode of several turns as one plays through it: its moves, its evaluations, and the other episodes. */
function game(data: WholeGroup, turn: Trace, route: Route): HTMLElement {
  const at = (trace: Trace | undefined): string => path(route.run, "groups", route.id,
    changed(route.query, { answer: String(data.traces.indexOf(trace ?? turn)) }));
  const all = episodes(data.traces);
  const isGame = data.position.episode.startsWith("game") || all.some((each) => each.filter(({ played }) => played.length).length > 1);
  const turns = all[turn.episode] ?? [];
  const reward = (list: Trace[]): number => list.reduce((sum, each) => sum + each.verdict.reward, 0);
  const plies = turns.flatMap((each) => [...each.before.map((move) => ({ each, move, index: 1 })),
    ...each.played.map((move, index) => ({ each, move, index }))]);
  let made = 0;
  /** The half-moves of the game before each turn. */
  const starts = turns.map(({ before, played }) => {
    const start = made + before.length;
    made = start + played.length;
    return start;
  });
  /** White's win probability by half-move: after it was made or, without a turn there, as the next turn has it. */
  const wins = new Map<number, number | null>();
  const forWhite = (trace: Trace, win: number | null): number | null =>
    win === null || turnOf(trace.real_fen) === "white" ? win : 1 - win;
  turns.forEach((each, index) => {
    const start = starts[index] ?? 0;
    if (!wins.has(start)) wins.set(start, forWhite(each, each.verdict.win_before));
    if (each.played.length) wins.set(start + 1, forWhite(each, each.verdict.win_after));
  });
  const step = (by: number, label: string, key: string): HTMLElement => {
    const next = turns[turns.indexOf(turn) + by];
    return next ? h("a", { href: at(next), "data-key": key }, label) : h("span", { class: "off" }, label);
  };
  return h("section", { class: "card game" },
    h("nav", { class: "facets", "aria-label": "Episodes" }, all.map((each, index) => h("a",
      { class: "switch", href: at(each[0]), "aria-current": index === turn.episode ? "true" : null },
      `Episode ${index + 1}${isGame ? `, ${sides(each).join(" and ")}` : ""}: ${each[0]?.result ?? `${each.length} turn${each.length > 1 ? "s" : ""}`}, ${signed(reward(each))}`))),
    h("p", {}, h("b", {}, `${data.position.episode}: `),
      isGame ? `the policy plays ${sides(turns).join(" and ")}, ` : null, `${turns.length} turns`,
      turn.result ? `, ${turn.result}${turns.at(-1)?.observation.replace(/^[^:]*:/, ":") ?? ""}` : ""),
    plies.length ? h("ol", { class: "moves", "aria-label": "Moves" }, plies.map(({ each, move, index }) =>
      h("li", {}, index ? h("span", { class: "muted" }, move.san)
        : h("a", { href: at(each), class: `move ${grade(each.verdict.outcome, each.verdict.regret)}`,
          "aria-current": each === turn ? "true" : null }, move.san)))) : null,
    h("nav", { class: "pager", "aria-label": "Turns" }, step(-1, "← Turn before", "ArrowLeft"),
      h("span", {}, `Turn ${turn.turn + 1} of ${turns.length}`), step(1, "Turn after →", "ArrowRight")),
    isGame && [...wins.values()].some((win) => win !== null) ? chart({ title: "White's win probability, and the policy's regret, by half-move",
      low: 0, high: 1, series: [
        { key: "win", label: "White's win probability", dotted: false, x: [...wins.keys()], y: [...wins.values()] },
        { key: "regret", label: "regret", dotted: true, x: starts.map((start) => start + 1), y: turns.map(({ verdict }) => verdict.regret) }] },
      (x) => go(at(turns.filter((_, index) => (starts[index] ?? 0) < Math.max(x, 1)).at(-1)), true)) : null);
}

/** Why an answer has no importance ratios. */
const withoutRatios = (trace: Trace, data: WholeGroup): string =>
  data.trained === null ? "Not trained on, so there are no ratios."
    : trace.no_loss || data.traces.some((other) => other.ratios) ? "This answer carried no loss, so it has no ratios."
      : `The ratios of step ${data.trained} are not on disk.`;

/** How a token is coloured: towards low or high, how strongly, and what its title says. */
function colour(trace: Trace, mode: string, index: number): [side: string, strength: number, title: string] {
  const logprob = trace.completion.logprobs[index] ?? 0;
  if (mode === "logprob") return ["low", -logprob / WORST,
    `p ${percent(Math.exp(logprob), 1)}, log-probability ${fixed(logprob, 3)}`];
  if (mode === "ratio") {
    const ratio = trace.ratios?.[index] ?? 1;
    return [ratio < 1 ? "low" : "high", Math.abs(Math.log2(ratio)),
      `ratio ${fixed(ratio, 3)}, sampled with p ${percent(Math.exp(logprob), 1)}`];
  }
  const own = trace.token_advantages?.[index];
  const advantage = own ?? learned(trace);
  return [advantage < 0 ? "low" : "high", Math.abs(advantage) / 2, own !== undefined ? `advantage ${signed(own)}`
    : trace.no_loss ? "no loss: truncated" : `advantage ${trace.advantage === null ? "not known" : signed(advantage)}`];
}

const WORST = 4;

function tokens(trace: Trace, mode: string): HTMLElement {
  return h("pre", { class: "model-text tokens", dir: "ltr" }, trace.tokens.slice(0, 4000).map((token, index) => {
    const [side, strength, title] = colour(trace, mode, index);
    return h("span", { class: `token ${side}`, "--strength": fixed(Math.min(1, strength), 3), title }, visible(token));
  }));
}

function legend(mode: string, data: WholeGroup): HTMLElement {
  if (mode === "logprob") return h("p", { class: "muted" },
    "The stronger its colour, the less probable a token was when it was sampled: none at 100%, full at 2% or less.");
  if (mode === "ratio") return h("p", { class: "muted" },
    "The probability of a token when the policy was trained on it, over that when it was sampled. Blue is above 1, orange below, full at twice or half.");
  if (mode === "advantage") return h("p", { class: "muted" },
    data.traces.some((trace) => trace.token_advantages)
      ? "The advantage that the trainer gave each token: blue is made more probable, orange less."
      : "The advantage of the whole answer: blue is made more probable, orange less. Those of single tokens are not on disk.");
  if (!data.traces.some((trace) => trace.sentences.length)) return h("p", { class: "muted" },
    "No sentences to check in these answers. Hover over an answer to see its arrows alone.");
  return h("p", { class: "muted" }, h("span", { class: "claim true" }, "true"), " ",
    h("span", { class: "claim false" }, "false"), " ", h("span", { class: "claim open" }, "open"), " ",
    h("span", { class: "claim unread" }, "unread"), " sentences, by the rules of chess");
}

/** A time since 1970 in words, if it is one: JavaScript has no date beyond the year 275,760. */
const time = (seconds: number | null): string =>
  seconds === null || Number.isNaN(new Date(seconds * 1000).getTime()) ? "–"
    : `${new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;

function facts(data: WholeGroup, route: Route, fen: string): HTMLElement {
  const { sampling } = data;
  const engine = data.traces.find((trace) => trace.verdict.engine)?.verdict;
  const rows: [string, string][] = [
    ["FEN", fen],
    ["version", `${data.policy.number}`],
    ["adapter", data.policy.sha256.slice(0, 16)],
    ["base model", data.base_model.split("@")[0]?.split("/").at(-1) ?? ""],
    ["sampling", `temperature ${sampling.temperature}, top-p ${sampling.top_p}, top-k ${sampling.top_k || "off"}, at most ${sampling.max_tokens} tokens`],
    ["position", `${data.position.id}, ply ${data.position.ply}, ${data.position.phase}`],
    ["generated", `${time(data.created_at)}, in ${fixed(data.generation_s, 2)} s`],
    ["judged", `in ${fixed(data.reward_s, 2)} s${engine?.engine ? `, ${engine.engine.id}` : ""}`],
    ["reward", data.traces[0]?.verdict.reward_version ?? ""],
  ];
  return h("div", { class: "facts" },
    h("dl", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, visible(value))])),
    h("p", { class: "actions" },
      h("a", { href: path(route.run, "position", "", { position: data.position.id, fen: data.prompt.fen }) },
        "Follow this position"),
      h("a", { href: `https://lichess.org/analysis/${fen.replaceAll(" ", "_")}`, rel: "noreferrer", target: "_blank" }, "Lichess"),
      h("button", { class: "link", onclick: () => void navigator.clipboard.writeText(fen) }, "Copy FEN"),
      h("a", { href: `/api/runs/${encodeURIComponent(route.run)}/groups/${encodeURIComponent(route.id)}`, download: `${data.id}.json` }, "JSON"),
      data.traces.some(({ played }) => played.length) ? h("a", { href: URL.createObjectURL(new Blob([pgn(data)], { type: "application/x-chess-pgn" })), download: `${data.id}.pgn` }, "PGN") : null,
      h("a", { href: path(route.run, "play", "", { fen }) }, "Play from here")),
    h("details", {}, h("summary", {}, `Prompt, ${data.prompt_tokens} tokens, style ${data.prompt.style}`),
      data.prompt.messages.map((message) => h("div", {}, h("h3", {}, message.role), modelText(message.content)))));
}

/** Links to the groups before and after this one in the list that it was chosen from. */
function neighbours(route: Route): HTMLElement | null {
  const list = JSON.parse(sessionStorage.getItem(LAST_LIST) ?? "[]") as string[];
  const at = list.indexOf(route.id);
  if (at < 0) return null;
  const to = (id: string | undefined, label: string, key: string): HTMLElement =>
    id ? h("a", { href: path(route.run, "groups", id, changed(route.query, { answer: "" })), "data-key": key }, label)
      : h("span", { class: "off" }, label);
  return h("nav", { class: "pager", "aria-label": "Groups of the list" }, to(list[at - 1], "← Previous", "["),
    to(list[at + 1], "Next →", "]"));
}

/** Chooses an answer by its number, from the keyboard. */
export function choose(route: Route, number: number): void {
  go(path(route.run, "groups", route.id, changed(route.query, { answer: String(number) })), true);
}
