// What the server answers, and how it is asked.

export interface Answer {
  i: number;
  episode: number;
  turn: number;
  result: string | null;
  reward: number;
  advantage: number | null;
  outcome: string;
  regret: number | null;
  length: number;
  surprise: number | null;
  san: string | null;
  matched: boolean;
}

export interface Group {
  id: string;
  run: string;
  position: string;
  fen: string;
  phase: string;
  kind: string;
  version: number;
  reward_mean: number | null;
  reward_std: number | null;
  distinct_moves: number;
  win_before: number | null;
  best: string | null;
  step: number | null;
  age: number | null;
  size: number;
  answers: Answer[];
}

export interface Summary {
  answers: number;
  groups: number;
  all_answers: number;
  reward: number | null;
  regret: number | null;
  legal: number | null;
  bins: { low: number; high: number; legal: number; other: number; grades: Record<string, number> }[];
  outcomes: { outcome: string; count: number }[];
}

export type Step = Record<string, number>;

interface Estimate {
  mean: number | null;
  ci95: [number | null, number | null] | null;
}

interface Start {
  time: number | null;
  command: string;
  commit: string;
  version: string;
}

export interface Overview {
  name: string;
  indexed: { files: number; of: number; problem: string };
  archive: {
    groups: number;
    trained: number;
    answers: number | null;
    first_version: number | null;
    last_version: number | null;
    style: string | null;
    kinds: string[] | null;
    components: string[];
  };
  settings: Record<string, unknown>;
  trainer: Record<string, unknown>;
  scheme: string;
  players: string[];
  manifest: { id?: string; starts?: number; first_start?: Start; last_start?: Start };
  course: {
    state: string;
    step: number;
    goal: number | null;
    first_step_at: number | null;
    go_on: string;
    averaged: number;
    change: Record<string, [number | null, number | null]>;
    last_steps: Step[];
  };
  evaluation: Record<string, Record<string, Estimate>>;
  account: {
    counts: {
      generated: number;
      trained: number;
      dropped: Record<string, number>;
      dead: Record<string, number>;
      archive: Record<string, number>;
    };
    traces: number;
    astray: number;
    archive_astray: number;
    committed: number | null;
  } | null;
  dropped: Record<string, number>;
  last_step: Step;
  writable: boolean;
}

export interface Move {
  uci: string;
  san: string;
}

export interface Verdict {
  reward: number;
  outcome: string;
  move: Move | null;
  best: Move | null;
  win_before: number | null;
  win_after: number | null;
  regret: number | null;
  eval_before: Evaluation | null;
  eval_after: Evaluation | null;
  components: Record<string, number>;
  reward_version: string;
  engine: { id: string; nodes: number } | null;
}

export interface Evaluation {
  cp: number | null;
  mate: number | null;
}

export interface Claim {
  concept: string;
  start: number;
  end: number;
  true: boolean | null;
}

export interface Sentence {
  start: number;
  end: number;
  read: boolean;
  claims: Claim[];
}

export interface Trace {
  id: string;
  episode: number;
  turn: number;
  /** Of its game, for the policy. */
  result: string | null;
  /** The board of the prompt, which may be mirrored, and that of the game. */
  fen: string;
  real_fen: string;
  mirrored: boolean;
  /** The policy's move and its opponent's, each with the position after it. */
  played: (Move & { fen: string })[];
  /** The move by which the opponent began the game, before its first turn. */
  before: (Move & { fen: string })[];
  observation: string;
  completion: { text: string; logprobs: number[]; finish_reason: string; seed: number };
  verdict: Verdict;
  no_loss: boolean;
  advantage: number | null;
  surprise: number | null;
  candidates: Move[];
  sentences: Sentence[];
  tokens: string[];
  ratios: number[] | null;
  token_advantages: number[] | null;
}

export interface WholeGroup {
  id: string;
  position: { id: string; fen: string; ply: number; phase: string; last_moves: string[]; task: string; episode: string };
  prompt: { style: string; messages: { role: string; content: string }[]; fen: string };
  prompt_tokens: number;
  policy: { number: number; sha256: string };
  base_model: string;
  sampling: { temperature: number; top_p: number; top_k: number; max_tokens: number };
  traces: Trace[];
  created_at: number | null;
  generation_s: number | null;
  reward_s: number | null;
  fate: string;
  /** The step that trained on it, which may have been abandoned. */
  trained: number | null;
  step: number | null;
  age: number | null;
}

/** How often each version has which values: bars of one width, from `low` on, by the place of its version. */
export interface Bars {
  low: number;
  width: number;
  counts: number[][];
}

export interface Panel {
  title: string;
  bars?: Bars;
  low: number | null;
  high: number | null;
  series: { key: string; label: string; dotted: boolean; x: number[]; y: (number | null)[] }[];
}

export interface Curves {
  training: Panel[];
  strength: Panel[];
}

export interface Collapse {
  quantiles: Record<string, (number | null)[][]>;
  histograms: Record<string, Bars>;
  /** One group in so many is in the quantiles and histograms. */
  every: number;
  outcomes: Record<string, (number | null)[]>;
  versions: number[];
  series: Record<string, (number | null)[]>;
  pieces: Record<string, (number | null)[]>;
  best_pieces: Record<string, (number | null)[]>;
}

export interface Comparison {
  indexing: string[];
  empty: string[];
  positions: number;
  first: number | null;
  second: number | null;
  difference: number | null;
  margin: number | null;
  page_size: number;
  rows: {
    position: string;
    fen: string;
    first: number;
    second: number;
    first_id: string;
    second_id: string;
    first_version: number;
    second_version: number;
    first_answers?: Answer[];
    second_answers?: Answer[];
  }[];
}

export interface Rescored {
  scheme: string;
  groups: number;
  left_out: number;
  answers: number;
  signs: Record<"kept" | "flipped" | "silenced" | "awakened", number>;
  rows: {
    id: string;
    fen: string;
    version: number;
    answers: { i: number; san: string | null; outcome: string; reward: number; rescored: number; change: string }[];
  }[];
}

export interface BatteryPage {
  players: string[];
  counts: Record<string, Record<string, number>>;
  questions: number;
  page_size: number;
  rows: {
    section: string;
    task: string;
    question: string;
    fen: string;
    answers: { player: string; outcome: string; move: string; regret: number | null; tokens: number; text: string }[];
  }[];
}

export interface DeadLetter {
  id: string;
  stream: string;
  entry: string;
  reason: string;
  item: string;
  replayable: boolean;
}

export interface Line {
  fen: string;
  start: string;
  moves: string[];
  sans: string[];
  dests: Record<string, string[]>;
  turn: "white" | "black";
  check: boolean;
  over: string | null;
}

export interface Players {
  models: { name: string; path: string }[];
  versions: number[];
  /** The version that this viewer serves. */
  serving: { version: number; state: "starting" | "ready" | "failed"; problem: string; model: string; style: string } | null;
  styles: string[];
  inference: string;
  reward: string;
}

export interface Reply {
  move: Move | null;
  best?: Move | null;
  text?: string;
  prompt?: string;
  candidates?: Move[];
  sentences?: Sentence[];
  verdict?: Verdict | null;
  problem?: string;
  win?: number;
  evaluation?: Evaluation;
}

export class Problem extends Error {}

const TOKEN = "rookery-token";

/** The token that allows to replay and to ask; kept for this tab, and never in an address that is sent. */
export const token = {
  get: (): string => sessionStorage.getItem(TOKEN) ?? "",
  set: (value: string): void => sessionStorage.setItem(TOKEN, value),
};

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return answer<T>(await fetch(`/api/${path}`, { signal: signal ?? null }));
}

export async function post<T>(path: string, body: unknown = {}): Promise<T> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (token.get()) headers["Authorization"] = `Bearer ${token.get()}`;
  return answer<T>(await fetch(`/api/${path}`, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function answer<T>(response: Response): Promise<T> {
  if (response.ok) return (await response.json()) as T;
  const body = (await response.json().catch(() => ({}))) as { detail?: string; title?: string; type?: string };
  const said = body.type === "about:blank" ? body.title : body.detail;
  throw new Problem(said ?? `${response.status} ${response.statusText}`);
}
