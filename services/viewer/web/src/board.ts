// Boards: small ones in lists, one with arrows, one to move on.

import { Chessground } from "@lichess-org/chessground";
import type { Api } from "@lichess-org/chessground/api";
import type { DrawShape } from "@lichess-org/chessground/draw";
import type { Config } from "@lichess-org/chessground/config";
import type { Key } from "@lichess-org/chessground/types";
import { h } from "./dom";

export type { Api, DrawShape, Key };

const PIECES: Record<string, string> = { k: "king", q: "queen", r: "rook", b: "bishop", n: "knight", p: "pawn" };

export const turnOf = (fen: string): "white" | "black" => (fen.split(" ")[1] === "b" ? "black" : "white");
export const mover = (fen: string): string => (turnOf(fen) === "black" ? "Black to move" : "White to move");

// Arrows differ in colour, and in width and opacity too, for those who do not see the colour.
const brush = (key: string, color: string, opacity: number, lineWidth: number) => ({ key, color, opacity, lineWidth });
const BRUSHES = {
  best: brush("b", "#0b7a5e", 0.95, 12),
  played: brush("p", "#1f6fd6", 0.85, 9),
  bad: brush("w", "#c84a00", 0.85, 9),
  named: brush("n", "#6b6b6b", 0.55, 5),
};
export type Brush = keyof typeof BRUSHES;

export const arrow = (uci: string, name: Brush): DrawShape => ({
  orig: uci.slice(0, 2) as Key,
  dest: uci.slice(2, 4) as Key,
  brush: name,
});

export interface Board {
  element: HTMLElement;
  api: Api;
  /** Draws arrows, once the board has a size. */
  draw: (shapes: DrawShape[]) => void;
}

/** A board in a frame of its own. It is drawn once the frame is in the page. */
export function board(fen: string, config: Config = {}): Board {
  const inner = h("div", {});
  const element = h("div", { class: "board", role: "img", "aria-label": spoken(fen) }, inner);
  const api = Chessground(inner, {
    fen,
    orientation: turnOf(fen),
    viewOnly: true,
    coordinates: false,
    animation: { enabled: false },
    drawable: { enabled: false, visible: true, brushes: BRUSHES as never },
    ...config,
  });
  let shapes: DrawShape[] = [];
  const draw = (wanted: DrawShape[]): void => {
    shapes = wanted;
    if (element.clientWidth) api.setAutoShapes(shapes);
  };
  const resized = new ResizeObserver(() => {
    if (!element.clientWidth) return;
    api.redrawAll();
    draw(shapes);
  });
  resized.observe(element);
  return { element, api, draw };
}

/** What a screen reader says: who moves, and where the pieces are. */
export function spoken(fen: string): string {
  const sides: Record<string, string[]> = { White: [], Black: [] };
  (fen.split(" ")[0] ?? "").split("/").forEach((rank, fromTop) => {
    let file = 0;
    for (const symbol of rank) {
      if (/\d/.test(symbol)) file += Number(symbol);
      else {
        const side = symbol === symbol.toUpperCase() ? "White" : "Black";
        sides[side]?.push(`${PIECES[symbol.toLowerCase()]} ${"abcdefgh"[file]}${8 - fromTop}`);
        file += 1;
      }
    }
  });
  return `${mover(fen)}. ${Object.entries(sides).map(([side, pieces]) => `${side}: ${pieces.join(", ")}`).join(". ")}`;
}
