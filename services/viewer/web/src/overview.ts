// The list of runs, and one run at a glance.

import { type Curves, get, type Overview, type Step, type Summary } from "./api";
import { chart, CURVES, histogram } from "./chart";
import { count, empty, h, percent, short, signed, visible, words } from "./dom";
import { key, problem, progress, section, table, tile } from "./parts";
import { changed, path, type Route } from "./route";

export async function runs(_: Route, signal: AbortSignal): Promise<HTMLElement> {
  const all = await get<{ name: string; id: string; last_step: Step }[]>("runs", signal);
  if (!all.length) return h("div", {}, h("h1", {}, "Runs"),
    empty("No runs yet", "Start one with `rookery demo`: it appears here with its first step."));
  const figure = (step: Step, key: string, text: (value: number) => string): string => {
    const value = step[key];  // null if it was not finite
    return typeof value === "number" ? text(value) : "–";
  };
  const time = (seconds: number): string => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
  const copies = ({ name, id }: { name: string; id: string }): string[] =>
    all.filter((other) => id && other.id === id && other.name !== name).map((other) => other.name);
  const row = (name: string, step: Step, same: string[]): (Node | string)[] => [
    h("span", {}, h("a", { href: path(name), class: "strong row-link" }, name),
      same.length ? h("span", { class: "muted" }, ` the same run as ${same.join(", ")}`) : null),
    figure(step, "step", count),
    figure(step, "reward", (value) => signed(value, 3)),
    figure(step, "legal_rate", (value) => percent(value, 1)),
    figure(step, "regret", short),
    figure(step, "entropy", short),
    figure(step, "time", time),
  ];
  return h("div", {},
    h("h1", {}, "Runs"),
    table(["run", "step", "reward", "legal moves", "regret", "entropy", "last step"],
      all.map((each) => row(each.name, each.last_step, copies(each))), "Runs"));
}

export async function overview({ run }: Route, signal: AbortSignal): Promise<HTMLElement> {
  const [data, summary, curves] = await Promise.all([
    get<Overview>(`runs/${run}`, signal),
    get<Summary>(`runs/${run}/summary`, signal),
    get<Curves>(`runs/${run}/curves`, signal),
  ]);
  const step = data.last_step;
  return h("div", {},
    h("h1", {}, run),
    progress(data.indexed.files, data.indexed.of),
    problem(data.indexed.problem),
    h("p", { class: "verdict-line" }, data.course.state === "unknown" ? null
      : [h("span", { class: `state ${data.course.state}` }, data.course.state), " "],
      verdict(data)),
    data.course.go_on ? h("p", { class: "muted" }, "Go on with: ", h("code", {}, data.course.go_on)) : null,
    about(data),
    h("div", { class: "tiles wide" },
      tile("step", count(step["step"] ?? 0), "training steps made: the newest version"),
      tile("reward", signed(step["reward"], 3), "mean of the answers of the last step"),
      tile("legal moves", percent(step["legal_rate"], 1), "share of the answers of the last step"),
      tile("regret", short(step["regret"]), "win probability of the best move less that of the one played, mean of legal moves"),
      tile("entropy", short(step["entropy"]), "nats per token: 0 if the policy always answers alike"),
      tile("equal rewards", percent(step["zero_variance_share"]), "groups without variance: nothing to learn from")),
    section("All answers, by reward",
      summary.all_answers
        ? [key(), histogram(summary, () => false,
          (low, below) => path(run, "answers", "", changed(new URLSearchParams(), { reward_min: low, reward_below: below })))]
        : empty("No answers in the archive yet",
          "The archive writes a file every minute, or when 256 groups are complete.")),
    curves.training.length
      ? section("Training",
      h("div", { class: "charts narrow" },
      curves.training.filter((panel) => CURVES.includes(panel.title)).map((panel) => chart(panel)))) : null,
    evaluation(data),
    lastVersions(data),
    account(data));
}

/** How the run goes, in a sentence: by held-out positions if it was evaluated, else by its own steps. */
function verdict({ course, players: names, evaluation: metrics }: Overview): string {
  const far = course.goal ? `${count(course.step)} of ${count(course.goal)} steps. ` : `${count(course.step)} steps. `;
  const players = metrics["regret_legal_greedy"] ?? {};
  const [first = "", last = ""] = [names[0], names.slice(1).at(-1)];
  const [before, after] = [players[first], players[last]];
  if (before?.ci95 && after?.ci95) {
    const apart = Number(after.ci95[1]) < Number(before.ci95[0]) ? "a lower regret, and the 95% intervals are apart"
      : Number(after.ci95[0]) > Number(before.ci95[1]) ? "a higher regret, and the 95% intervals are apart"
      : "no sure difference: the 95% intervals overlap";
    return `${far}On held-out positions, the regret of greedy legal moves is ${short(after.mean)} for ${last} and ${short(before.mean)} for ${first}: ${apart}.`;
  }
  const change = (key: string, name: string, text: (value: number | null) => string): string | null => {
    const [from, to] = course.change[key] ?? [null, null];
    return to === null ? null : from === to ? `${name} ${text(to)}` : `${name} ${text(from)} to ${text(to)}`;
  };
  const changes = [change("reward", "reward", (value) => signed(value, 3)),
    change("legal_rate", "legal moves", (value) => percent(value, 1)), change("regret", "regret", short),
    change("entropy", "entropy", short)].filter((text) => text !== null);
  const still = course.change["zero_variance_share"]?.[1] ?? 0;
  return !changes.length ? `${far}No step has been made yet.`
    : `${far}From the first to the last ${course.averaged > 1 ? `${course.averaged} steps` : "step"}: ${changes.join(", ")}.${
      still > 0.5 ? ` ${percent(still)} of the last groups have equal rewards, so there is little to learn from.` : ""}`;
}

const utc = (seconds: number): string => `${new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;

/** What the run is: the settings that matter. */
function about({ settings, trainer, scheme, course, archive, manifest }: Overview): HTMLElement | null {
  const time = course.first_step_at === null ? null : utc(course.first_step_at);
  const { first_start: first, last_start: last, starts = 0 } = manifest;
  const code = (start: typeof last): string | null => start ? start.commit || `version ${start.version}` : null;
  const kl = trainer["kl"] ? `${words(String(trainer["kl"]))}, ${trainer["kl_coefficient"] ?? 0}` : null;
  const rows = [["model", settings["model"]], ["preset", settings["preset"]], ["scheme", scheme],
    ["objective", [trainer["objective"], trainer["baseline"]].filter(Boolean).join(", ")], ["learning rate", trainer["lr"]], ["KL", kl],
    ["LoRA rank", trainer["lora_rank"]], ["style", settings["style"] ?? archive.style],
    ["groups a step", settings["batch_groups"] && `${settings["batch_groups"]} of ${settings["group_size"]} answers`],
    ["games", settings["source"]], ["seed", settings["seed"]], ["started", first?.time ? utc(first.time) : null], ["first step", time],
    ["started again", starts > 1 ? `${count(starts - 1)}×, last ${last?.time ? utc(last.time) : "at an unknown time"}` : null],
    ["id", manifest.id], ["command", last?.command], ["commit", code(last)],
    ["first commit", code(first) === code(last) ? null : code(first)]]
    .filter(([, value]) => value !== null && value !== undefined && value !== "");
  return rows.length ? h("dl", { class: "about" },
    rows.map(([name, value]) => h("div", {}, h("dt", {}, String(name)), h("dd", {}, visible(String(value)))))) : null;
}

function lastVersions({ name, course }: Overview): HTMLElement | null {
  if (!course.last_steps.length) return null;
  return section("Last versions", table(["version", "reward", "legal moves", "regret", "entropy", "seconds a step"],
    course.last_steps.map((step) => [
      h("a", { href: path(name, "answers", "", { version_min: String(step["version"] ?? 0), version_max: String(step["version"] ?? 0) }) }, `v${step["version"] ?? "–"}`),
      signed(step["reward"], 3), percent(step["legal_rate"], 1), short(step["regret"]), short(step["entropy"]), short(step["step_s"]),
    ]), "Last versions"));
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
  const names = Object.keys(metrics).filter((name) =>
    ["legal_rate", "legal_rate_greedy", "regret_legal", "regret_legal_greedy", "action_accuracy",
    "action_accuracy_greedy"].includes(name));
  if (!names.length) return null;
  const players = Object.keys(metrics[names[0] ?? ""] ?? {});
  return section("Held-out positions", table(["", ...players],
    names.map((name) => [words(name), ...players.map((player) => {
      const found = metrics[name]?.[player];
      return found ? `${short(found.mean)}${found.ci95 ? ` [${found.ci95.map(short).join(", ")}]` : ""}` : "–";
    })]), "Evaluation on held-out positions"));
}
