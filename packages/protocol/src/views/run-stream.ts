import type { EventRecord } from "../event.ts";
import type { AnyMessage } from "./chat-messages.ts";
import { MessageView } from "./chat-view.ts";
import type { RunRecord } from "./engine-events.ts";
import { EngineView, type RunFacts } from "./engine-view.ts";
import { ItemView } from "./item-view.ts";
import type { RunItem } from "./run-items.ts";

// One run for one follower, in the view that the follower wants, each emission with a position to come back to.

export const runViews = ["engine", "items", "messages"] as const;
export type RunViewName = (typeof runViews)[number];

/** How far a follower has read. Some events make several emissions: `part` counts those of one event from 0. */
export interface Position {
  seq: number;
  /** Absent: all of them. */
  part?: number;
}

/** What a follower is sent. */
export interface Emission {
  /** Its position: `<seq>` for the last emission of an event, `<seq>.<part>` for those before it. */
  id: string;
  data: RunRecord | RunItem | AnyMessage;
}

const positionText = /^(\d{1,15})(?:\.(\d{1,4}))?$/;

/** Reads the id of an emission. */
export function parsePosition(text: string): Position | undefined {
  const [, seq, part] = positionText.exec(text) ?? [];
  if (seq === undefined) return undefined;
  return part === undefined ? { seq: Number(seq) } : { seq: Number(seq), part: Number(part) };
}

/**
 * Makes the emissions of one run. It is given the records of the run from the first one also for a follower who comes
 * back, because a view depends on what came before; what lies before `after` is left out.
 */
export class RunStream {
  readonly #push: (record: EventRecord) => Emission["data"][];
  readonly #after: Position;

  constructor(view: RunViewName, run: RunFacts, after: Position = { seq: 0 }) {
    this.#push = viewOf(view, run);
    this.#after = after;
  }

  push(record: EventRecord): Emission[] {
    const made = this.#push(record);
    const { seq, part = Infinity } = this.#after;
    if (record.seq < seq) return [];
    const emissions = made.map((data, index) => ({
      id: index === made.length - 1 ? `${record.seq}` : `${record.seq}.${index}`,
      data,
    }));
    return record.seq > seq ? emissions : emissions.slice(part + 1);
  }
}

function viewOf(name: RunViewName, run: RunFacts): (record: EventRecord) => Emission["data"][] {
  switch (name) {
    case "engine": {
      const view = new EngineView(run);
      return (record) => [view.push(record) ?? []].flat();
    }
    case "items": {
      const view = new ItemView(run);
      return (record) => view.push(record);
    }
    case "messages": {
      const view = new MessageView(run);
      return (record) => view.push(record);
    }
  }
}
