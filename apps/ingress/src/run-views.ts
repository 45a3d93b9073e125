import { isTerminal, sseEvent, type EventRecord } from "@larkline/protocol";
import { EngineView, type RunFacts } from "@larkline/protocol/views/engine-view";
import { ItemView } from "@larkline/protocol/views/item-view";
import type { RunView } from "./stream.ts";

// The views of runs as server-sent events. A view is made from all events of its run, so the same run looks the same to
// everybody who follows it, whenever they come; `afterSeq` says what a client has seen of it.

/** What a view makes of the records of one run, pushed in order from the first one. */
interface View {
  push(record: EventRecord): readonly unknown[];
}

const makers = {
  engine: (run: RunFacts): View => {
    const view = new EngineView(run);
    return { push: (record) => [view.push(record)].filter((shown) => shown !== undefined) };
  },
  items: (run: RunFacts): View => new ItemView(run),
};

export type ViewName = keyof typeof makers;
export const viewNames = Object.keys(makers);

export function isViewName(name: unknown): name is ViewName {
  return typeof name === "string" && Object.hasOwn(makers, name);
}

/**
 * A view of a run. What one record comes to has its position as `id:` in the last event alone, so that a client whose
 * connection breaks in between gets all of it again. The event `end` says that there is no more.
 */
export function runView(name: ViewName, run: RunFacts, afterSeq: number): RunView {
  let view = makers[name](run);
  let { runId } = run;
  return {
    show: (record) => {
      // A message that has joined another run: that one's events follow.
      if (record.runId !== runId) {
        runId = record.runId;
        view = makers[name]({ ...run, runId });
      }
      const shown = view.push(record);
      if (record.seq <= afterSeq) return "";
      const id = record.seq;
      const events = shown.map((data, at) => sseEvent(at === shown.length - 1 ? { id, data } : { data })).join("");
      return isTerminal(record.event) ? events + sseEvent({ id, event: "end", data: { run_id: runId } }) : events;
    },
    lost: sseEvent({ id: 0, event: "end", data: { run_id: run.runId, lost: true } }),
  };
}
