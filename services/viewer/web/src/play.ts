// A position of one's own: ask a version or the engine, or play a game against it.

import { get, type Line, type Overview, type Players, post, type Reply } from "./api";
import { arrow, type Board, board, type Key } from "./board";
import { marks } from "./group";
import { h, modelText, percent, short, signed } from "./dom";
import { tokenField } from "./parts";
import { changed, go, path, type Route } from "./route";

export async function play(route: Route, signal: AbortSignal): Promise<HTMLElement> {
  const { run, query } = route;
  const moves = query.get("moves")?.split(",").filter(Boolean) ?? [];
  const start = query.get("fen") ?? "";
  const [line, players, about] = await Promise.all([
    post<Line>("play/position", { fen: start, moves }),
    get<Players>(`runs/${run}/players`, signal),
    get<Overview>(`runs/${run}`, signal),
  ]);
  const opponent = query.get("against") ?? "";
  const style = query.get("style") ?? (players.serving?.style || null) ?? about.archive.style ?? "mover-squares";
  const to = (values: Record<string, string>): void => go(path(run, "play", "", changed(query, values)), true);
  const verdict = h("div", { class: "verdict", role: "status" });
  const refuse = (error: unknown): void =>
    verdict.replaceChildren(h("p", { class: "notice" }, (error as Error).message));
  /** Makes a move, if it is legal and the page still shows this position. */
  const push = async (move: string): Promise<void> => {
    try {
      const next = await post<Line>("play/position", { fen: start, moves: [...moves, move] });
      if (!signal.aborted) to({ moves: next.moves.join(",") });
    } catch (error) {
      refuse(error);
    }
  };
  const shown = board(line.fen, {
    coordinates: true,
    viewOnly: false,
    orientation: (query.get("side") as "white" | "black" | null) ?? line.turn,
    turnColor: line.turn,
    check: line.check,
    ...(line.moves.length ? { lastMove: squares(line.moves.at(-1) ?? "") } : {}),
    movable: { free: false, color: line.over ? undefined : line.turn, dests: destinations(line), showDests: true,
      events: { after: (from: string, target: string) => void push(full(line, from, target)) } },
    draggable: { showGhost: true },
  } as never);
  const ask = async (player: string, then: boolean): Promise<void> => {
    verdict.replaceChildren(h("p", { class: "muted" }, `${player} thinks …`));
    try {
      const reply = await post<Reply>(`runs/${run}/ask`,
        { fen: line.start, moves: line.moves, player, style, max_tokens: Number(about.settings["max_tokens"] ?? 64) });
      if (signal.aborted) return;
      show(reply, player === players.serving?.model ? `Version ${players.serving.version}` : player, verdict, shown);
      if (then && reply.move) await push(reply.move.uci);
    } catch (error) {
      refuse(error);
    }
  };
  if (opponent && !line.over && line.turn !== (query.get("side") ?? "white")) void ask(opponent, true);
  return h("div", { class: "play" },
    h("h1", {}, "Play"),
    missing(players, about),
    serve(run, players, signal),
    h("div", { class: "group-columns" },
      h("aside", { class: "board-side" }, h("div", { class: "board-frame" }, shown.element),
        h("p", { class: "under-board" },
          h("b", {}, line.over ?? (line.turn === "white" ? "White to move" : "Black to move"))),
        h("ol", { class: "moves", "aria-label": "Moves" }, line.sans.map((san) => h("li", {}, san))),
        h("p", { class: "actions" },
          moves.length ? h("button",
            { onclick: () => to({ moves: moves.slice(0, opponent ? -2 : -1).join(","), against: "" }) }, "Take back")
            : null,
          h("button", { onclick: () => shown.api.toggleOrientation() }, "Flip"),
            h("button", { onclick: () => go(path(run, "play")) }, "New game"))),
      h("div", {},
        controls(players, style, ask, (player) => to({ against: player, side: line.turn }),
          (name) => to({ style: name }), push),
        verdict,
        setUp(run, line))));
}

const squares = (uci: string): Key[] => [uci.slice(0, 2) as Key, uci.slice(2, 4) as Key];
const destinations = (line: Line): Map<Key, Key[]> =>
  new Map(Object.entries(line.dests).map(([from, all]) => [from as Key, all.map((uci) => uci.slice(2, 4) as Key)]));
/** The move between two squares; a pawn becomes a queen. */
const full = (line: Line, from: string, target: string): string =>
  (line.dests[from] ?? []).find((uci) => uci === from + target || uci === `${from}${target}q`) ?? from + target;

/** Which version is served here, and a choice of another one. */
function serve(run: string, players: Players, signal: AbortSignal): HTMLElement | null {
  const { serving, versions } = players;
  if (!versions.length) return null;
  const said = h("span", { role: "status" }, !serving ? "" : serving.state === "ready" ? `Version ${serving.version} is served here.`
    : serving.state === "failed" ? `Version ${serving.version} could not be served: ${serving.problem}`
      : `Version ${serving.version} is being loaded, which takes about a minute …`);
  if (serving?.state === "starting") setTimeout(() => signal.aborted || go(location.href, true), 2000);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const version = Number(new FormData(event.currentTarget as HTMLFormElement).get("version"));
    said.replaceChildren("Starting …");
    try {
      await post(`runs/${run}/serve`, { version });
      if (!signal.aborted) go(location.href, true);
    } catch (error) {
      said.replaceChildren((error as Error).message);
    }
  };
  return h("form", { class: "choice", onsubmit: submit },
    h("label", {}, "Version ", h("select", { name: "version" }, [...versions].reverse().map((version) =>
      h("option", { value: version, selected: version === serving?.version }, String(version))))),
    h("button", {}, "Serve it"), said);
}

function missing(players: Players, { writable }: Overview): HTMLElement | null {
  const said = [players.inference && `The policy cannot be asked: ${players.inference}.${players.versions.length ? " This page can serve a version of it." : ""}`,
    players.reward && `The engine cannot be asked: ${players.reward}`,
    writable ? "" : "This viewer is read-only: set ROOKERY_TOKEN, or start it by `rookery view`."].filter(Boolean);
  return said.length ? h("div", { class: "notice" }, said.map((each) => h("p", {}, each))) : null;
}

function controls(players: Players, style: string, ask: (player: string, then: boolean) => void,
  against: (player: string) => void, styled: (name: string) => void, push: (move: string) => Promise<void>): HTMLElement {
  const select = h("select", { id: "player" }, h("option", { value: "engine" }, "engine"),
    players.models.map(({ name }) => h("option", { value: name, selected: name === players.serving?.model },
      name === players.serving?.model ? `version ${players.serving.version}` : name))) as HTMLSelectElement;
  const submit = (event: Event): void => {
    event.preventDefault();
    void push(String(new FormData(event.currentTarget as HTMLFormElement).get("move")).trim());
  };
  return h("div", { class: "card controls" },
    h("label", {}, "Player ", select),
    h("label", {}, "Prompt style ",
      h("select", { onchange: (event: Event) => styled((event.currentTarget as HTMLSelectElement).value) },
      players.styles.map((name) => h("option", { value: name, selected: name === style }, name)))),
    tokenField(),
    h("p", { class: "actions" },
      h("button", { class: "primary", onclick: () => ask(select.value, false) }, "Ask"),
      h("button", { onclick: () => against(select.value) }, "Play against it")),
    h("form", { onsubmit: submit, class: "filter-line" },
      h("label", {}, "Your move ",
      h("input", { name: "move", placeholder: "e4 or e2e4", size: 10, autocomplete: "off" })),
      h("button", {}, "Move")),
    h("p", { class: "muted" }, "A pawn dragged to the last rank becomes a queen. For another piece, type e8=N."));
}

function show(reply: Reply, player: string, place: HTMLElement, shown: Board): void {
  const verdict = reply.verdict;
  const drawn = [...(reply.candidates ?? []).map(({ uci }) => arrow(uci, "named")), reply.best ? arrow(reply.best.uci, "best") : null,
    reply.move ? arrow(reply.move.uci, "played") : null];
  shown.draw(drawn.filter((shape) => shape !== null));
  place.replaceChildren(h("article", { class: "card" },
    h("h2", {}, `${player}: ${reply.move?.san ?? "no legal move"}`),
    reply.text !== undefined ? modelText(reply.text, marks(reply.sentences ?? [])) : null,
    reply.candidates?.length ? h("p", {}, `Candidates ${reply.candidates.map(({ san }) => san).join(" ")}`) : null,
    reply.problem ? h("p", { class: "notice" }, reply.problem) : null,
    verdict ? h("p", {}, `Reward ${signed(verdict.reward, 3)}, ${verdict.outcome}; best ${reply.best?.san ?? "–"}; win ${percent(verdict.win_before)} to ${percent(verdict.win_after)}; regret ${short(verdict.regret)}`) : null,
    reply.win !== undefined ? h("p", {}, `Win probability ${percent(reply.win, 1)}`) : null,
    reply.prompt ? h("details", {}, h("summary", {}, "Prompt"), modelText(reply.prompt)) : null));
}

function setUp(run: string, line: Line): HTMLElement {
  const said = h("p", { role: "status", class: "muted" });
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const text = String(new FormData(event.currentTarget as HTMLFormElement).get("text")).trim();
    const isFen = /^[1-8pnbrqkPNBRQK]+(\/[1-8pnbrqkPNBRQK]+){7}/.test(text);
    try {
      const next = await post<Line>("play/position", isFen ? { fen: text } : { pgn: text });
      go(path(run, "play", "", { fen: next.start, moves: next.moves.join(",") }));
    } catch (error) {
      said.replaceChildren((error as Error).message);
    }
  };
  return h("form", { class: "card", onsubmit: submit },
    h("label", {}, "FEN or PGN", h("textarea", { name: "text", rows: 4, spellcheck: "false" }, line.fen)),
    h("p", { class: "actions" }, h("button", {}, "Set up")), said);
}
