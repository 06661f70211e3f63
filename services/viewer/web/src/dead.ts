// The dead letters of a run.

import { type DeadLetter, get, type Overview, post, Problem } from "./api";
import { empty, h, visible } from "./dom";
import { table, tokenField } from "./parts";
import type { Route } from "./route";

export async function dead({ run }: Route, signal: AbortSignal): Promise<HTMLElement> {
  let letters: DeadLetter[];
  try {
    letters = await get<DeadLetter[]>(`runs/${run}/dead`, signal);
  } catch (error) {
    if (signal.aborted || !(error instanceof Problem)) throw error;
    return h("div", {}, h("h1", {}, "Dead letters"), empty("They are in the run's Redis, which cannot be asked",
      `${error.message}${await goOn(run, signal, "to see them")}`));
  }
  const replay = (letter: DeadLetter): HTMLElement => {
    const said = h("span", { role: "status" });
    const button = h("button", { onclick: async () => {
      try {
        await post(`runs/${run}/dead/${letter.id}/replay`);
        button.remove();
        said.replaceChildren("put back");
      } catch (error) {
        said.replaceChildren((error as Error).message);
      }
    } }, "Replay");
    return h("span", {}, button, " ", said);
  };
  const replayable = letters.some((letter) => letter.replayable);
  return h("div", {}, h("h1", {}, "Dead letters"),
    letters.length
      ? [h("p", {}, replayable ? tokenField() : `The run's Redis is not up, or has lost them: these are what the archive kept.${
        await goOn(run, signal, "to put them back")}`), table(["stream", "item", "reason", "entry", ""],
        letters.map((letter) =>
        [letter.stream, h("code", {}, visible(letter.item)), h("span", { class: "reason" }, visible(letter.reason)),
        letter.entry, letter.replayable ? replay(letter) : ""]), "Dead letters")]
      : empty("No dead letters", "Every position and group of this run could be handled."));
}

async function goOn(run: string, signal: AbortSignal, why: string): Promise<string> {
  const { course } = await get<Overview>(`runs/${run}`, signal);
  return course.go_on ? ` Go on with the run ${why}: \`${course.go_on}\`` : "";
}
