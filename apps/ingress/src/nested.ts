import { childSessionOf, turnIdOf, type SessionKey } from "@larkline/protocol";
import type { EventOf, EventRecord } from "@larkline/protocol/event";
import type { RunFacts } from "@larkline/protocol/views/engine-view";
import {
  parsePosition,
  RunStream,
  type Emission,
  type Position,
  type RunViewName,
} from "@larkline/protocol/views/run-stream";
import { sseEvent } from "@larkline/protocol/views/stream-frame";
import type { Services } from "./services.ts";
import {
  isEnd,
  keptEvents,
  recordsFor,
  recordsOfRun,
  withTotals,
  type RunPosition,
  type RunView,
  type SseStream,
} from "./stream.ts";

/*
 * A run and the runs of all helpers below it as one stream. Events of different runs come as they happen, with one rule:
 * the result of a call of a helper is sent after all events of this helper. A client that has seen the
 * result has therefore seen the whole helper, and its position names only those that are at work: the place in the root,
 * then for each such helper the numbers of the calls that lead to it, and the place in its run.
 */

/** How far a client has read. */
export interface NestedPosition {
  root: Position;
  /**
   * The positions in helpers, by the numbers of the calls that lead to each, such as `0_2`: the third of the first one.
   */
  below: ReadonlyMap<string, Position>;
}

/**
 * Helpers that a position names on each level, so that it stays short. Further ones follow when the ends of these are sent,
 * or their own, which comes next in the run of their asker: one more for each asker.
 */
const maxFollowed = 16;
/** Helpers work three levels deep. */
const maxLevels = 3;
/** The levels add 16 and 1 for the root, 16 and 17, 16 and 33. */
const maxBranches = 17 + 33 + 49;

const branchText = /^(\d{1,4}(?:_\d{1,4}){0,2})-(\d{1,15}(?:\.\d{1,4})?)$/;

/** Reads the id of an emission of {@link tellNested}, or of a view of the root alone. */
export function parseNested(text: string): NestedPosition | undefined {
  const [first = "", ...others] = text.split("~", 1 + maxBranches + 1);
  const root = parsePosition(first);
  if (root === undefined || others.length > maxBranches) return undefined;
  const below = new Map<string, Position>();
  for (const other of others) {
    const [, path, place = ""] = branchText.exec(other) ?? [];
    const position = parsePosition(place);
    if (path === undefined || position === undefined) return undefined;
    below.set(path, position);
  }
  return { root, below };
}

/** A view of one run whose emissions can be had one by one. */
export interface RunEmissions extends RunView {
  emissions(record: EventRecord): Emission[];
}

const alsoIn = { engine: "totals", items: undefined, messages: "joined" } as const satisfies Record<
  RunViewName,
  RunView["also"]
>;

/**
 * A view of a run for one client, who has seen everything up to `after`. It is given all records of the run, since a
 * view is made from what came before, too. The event `end` says that there is no more.
 */
export function runView(name: RunViewName, run: RunFacts, after?: Position): RunEmissions {
  const streamOf = (runId: string) => new RunStream(name, { ...run, runId }, after);
  let { runId } = run;
  let stream = streamOf(runId);
  const emissions = (record: EventRecord): Emission[] => {
    const next =
      record.event.type === "done" ? (record.event.takenBy ?? record.runId) : record.runId;
    // The message has joined another run: that one's events follow.
    if (next !== runId) {
      runId = next;
      stream = streamOf(runId);
    }
    return stream.push(record);
  };
  return {
    also: alsoIn[name],
    emissions,
    show: (record) =>
      emissions(record)
        .map((emission) => sseEvent(emission))
        .join(""),
    end: ({ seq }) => sseEvent({ id: `${seq}`, event: "end", data: { run_id: runId } }),
    lost: sseEvent({ event: "end", data: { run_id: run.runId, lost: true } }),
  };
}

export interface NestedRun {
  run: RunPosition;
  name: RunViewName;
  /** What the stream of the root emits, and how it ends. */
  view: RunEmissions;
  sessionIdOf(session: SessionKey): string;
  after: NestedPosition | undefined;
}

/** Writes everything up to the end of the root; false: the stream was stopped before. */
export async function tellNested(
  services: Services,
  stream: SseStream,
  nested: NestedRun,
  stop: AbortSignal,
): Promise<boolean> {
  return await new RunTree(services, stream, nested, stop).tell();
}

/** One run of the tree. */
interface Branch {
  session: SessionKey;
  /** The numbers of the calls that lead to it; empty for the root. */
  path: string;
  /** The client has received everything up to here, on this connection or before. */
  position: Position;
  /** The position from which the client has read it on this connection. */
  readonly began: Position;
  emissions(record: EventRecord): Emission[];
  /** Calls of helpers so far: each has a number. */
  readonly calls: Set<string>;
  /** Helpers at work, by the id of their call. */
  readonly open: Map<string, Helper>;
}

interface Helper extends Branch {
  runId: string;
  /** Aborts when the result of its call is in the log of its asker. From then on its own log is complete. */
  readonly resultSeen: AbortController;
  /**
   * Whether it holds a place of its level. It keeps the place until the run of its asker has sent its end: until then
   * its position is needed.
   */
  hasPlace: boolean;
  done: Promise<void> | undefined;
}

class RunTree {
  readonly #services: Services;
  readonly #stream: SseStream;
  readonly #nested: NestedRun;
  /** A helper's events could not be read: the stream ends, and its client resumes. */
  #failure: { error: unknown } | undefined;
  readonly #over = new AbortController();
  readonly #stop: AbortSignal;
  readonly #root: Branch;
  /** The positions of the client in helpers that its own asker has not led to yet. */
  readonly #below: Map<string, Position>;
  readonly #places: Places[];

  constructor(services: Services, stream: SseStream, nested: NestedRun, stop: AbortSignal) {
    const { root: position, below } = nested.after ?? {
      root: { seq: 0 },
      below: new Map<string, Position>(),
    };
    this.#services = services;
    this.#stream = stream;
    this.#nested = nested;
    this.#stop = AbortSignal.any([stop, this.#over.signal]);
    this.#below = new Map(below);
    this.#places = Array.from({ length: maxLevels }, (_, level) => {
      return new Places([...below.keys()].filter((path) => levelOf(path) === level).length);
    });
    const { session } = nested.run;
    const emissions = (record: EventRecord) => nested.view.emissions(record);
    this.#root = {
      session,
      path: "",
      position,
      began: position,
      emissions,
      calls: new Set(),
      open: new Map(),
    };
  }

  async tell(): Promise<boolean> {
    try {
      const isSent = await this.#sendRoot();
      if (this.#failure !== undefined) throw this.#failure.error;
      return isSent;
    } finally {
      this.#over.abort();
    }
  }

  async #sendRoot(): Promise<boolean> {
    const { run, view } = this.#nested;
    let last: EventRecord | undefined;
    for await (const record of recordsFor(this.#services, run, view.also, this.#stop)) {
      if (record === "lost") {
        await this.#stream.write(view.lost);
        return !this.#stream.gone.aborted;
      }
      if (!(await this.#sendRecord(this.#root, record))) return false;
      last = record;
    }
    if (this.#stop.aborted || last === undefined) return false;
    await this.#stream.write(view.end(last));
    return true;
  }

  /** Sends a record, after all records of the helpers whose end it reports. False: the stream was stopped. */
  async #sendRecord(branch: Branch, record: EventRecord): Promise<boolean> {
    for (const callId of endedBy(branch, record)) {
      const helper = branch.open.get(callId);
      if (record.seq > branch.began.seq && helper !== undefined) {
        this.#start(helper);
        helper.resultSeen.abort();
        await helper.done;
        if (this.#stop.aborted) return false;
      }
      branch.open.delete(callId);
      if (helper !== undefined) this.#forget(helper);
    }
    const text = this.#show(branch, record);
    if (text !== "") await this.#stream.write(text);
    if (this.#stop.aborted) return false;
    if (record.event.type === "tool_use") this.#called(branch, record, record.event);
    if (record.seq >= branch.began.seq) {
      for (const helper of branch.open.values()) this.#start(helper);
    }
    return true;
  }

  /** The emissions of a record, each with the position of the whole tree after it. */
  #show(branch: Branch, record: EventRecord): string {
    const emissions = branch.emissions(record);
    if (record.seq < branch.position.seq) return "";
    const texts = emissions.map(({ id, data }) => {
      branch.position = parsePosition(id) ?? branch.position;
      const { runId, parentRunId } = record;
      const place = { runId, ...(parentRunId === undefined ? {} : { parentRunId }) };
      return sseEvent({
        id: this.#place(),
        data: this.#nested.name === "items" ? { ...data, ...place } : data,
      });
    });
    branch.position = { seq: record.seq };
    return texts.join("");
  }

  #place(): string {
    const places = [textOf(this.#root.position)];
    const add = ({ open }: Branch): void => {
      for (const helper of open.values()) {
        if (helper.position.seq > 0) places.push(`${helper.path}-${textOf(helper.position)}`);
        add(helper);
      }
    };
    add(this.#root);
    for (const [path, position] of this.#below) places.push(`${path}-${textOf(position)}`);
    return places.join("~");
  }

  #called(
    branch: Branch,
    { runId: parentRunId }: EventRecord,
    { id, helper: agent }: EventOf<"tool_use">,
  ): void {
    if (agent === undefined || branch.calls.has(id)) return;
    const path = [branch.path, branch.calls.size].filter((part) => part !== "").join("_");
    branch.calls.add(id);
    const session = childSessionOf(branch.session, parentRunId, id);
    const runId = turnIdOf(session, 1);
    const position = this.#below.get(path);
    this.#below.delete(path);
    const facts = {
      runId,
      sessionId: this.#nested.sessionIdOf(session),
      agent,
      startedAtMs: 0,
      parentRunId,
    };
    const stream = new RunStream(this.#nested.name, facts, position);
    branch.open.set(id, {
      session,
      runId,
      path,
      position: position ?? { seq: 0 },
      began: position ?? { seq: 0 },
      emissions: (record) => stream.push(record),
      calls: new Set(),
      open: new Map(),
      resultSeen: new AbortController(),
      hasPlace: position !== undefined,
      done: undefined,
    });
  }

  #start(helper: Helper): void {
    helper.done ??= this.#sendHelper(helper).catch((error: unknown) => {
      this.#failure ??= { error };
      this.#over.abort();
    });
  }

  async #sendHelper(helper: Helper): Promise<void> {
    // Before the end in its asker's run its own records have to be sent, with a place or without.
    helper.hasPlace ||= await this.#placesOf(helper.path).take(
      AbortSignal.any([this.#stop, helper.resultSeen.signal]),
    );
    const own = recordsOfRun(this.#recordsOf(helper), helper.runId);
    const records =
      this.#nested.view.also === "totals" ? withTotals(this.#services, helper.session, own) : own;
    for await (const record of records) {
      if (record === "lost" || !(await this.#sendRecord(helper, record))) break;
    }
  }

  /** The records of a helper's session: as they come, and when its asker knows of its end what there is of them. */
  async *#recordsOf({ session, resultSeen }: Helper): AsyncGenerator<EventRecord> {
    const { eventLog } = this.#services;
    let last = 0;
    for await (const record of eventLog.follow(
      session,
      0,
      AbortSignal.any([this.#stop, resultSeen.signal]),
    )) {
      if (record === undefined) continue;
      last = record.seq;
      yield record;
    }
    if (!this.#stop.aborted) yield* keptEvents(this.#services, session, last);
  }

  /** A helper has ended: gives its place away, and those below it, also where the client was that it has not led to. */
  #forget(helper: Helper): void {
    if (helper.hasPlace) this.#placesOf(helper.path).free();
    for (const below of helper.open.values()) this.#forget(below);
    for (const path of this.#below.keys()) {
      if (path.startsWith(`${helper.path}_`) && this.#below.delete(path)) {
        this.#placesOf(path).free();
      }
    }
  }

  #placesOf(path: string): Places {
    const level = levelOf(path);
    return (this.#places[level] ??= new Places(0));
  }
}

/** The calls whose helpers have ended when a run has a record: with word of an answer, a result, or the end of the run. */
function endedBy({ open }: Branch, record: EventRecord): string[] {
  const { event } = record;
  if (event.type === "tool_result") return [event.id];
  if (event.type === "teammate_message_received" && event.messageType === "task_result") {
    return [...open].flatMap(([callId, { runId }]) => (runId === event.messageId ? [callId] : []));
  }
  return isEnd(record) ? [...open.keys()] : [];
}

function levelOf(path: string): number {
  return path.split("_").length - 1;
}

function textOf({ seq, part }: Position): string {
  return part === undefined ? `${seq}` : `${seq}.${part}`;
}

/** Helpers of one level that a position may name. */
class Places {
  #taken: number;
  readonly #waiting = new Set<() => void>();

  constructor(taken: number) {
    this.#taken = taken;
  }

  /** Whether there was one before `stop` aborted. */
  async take(stop: AbortSignal): Promise<boolean> {
    if (this.#taken < maxFollowed) {
      this.#taken += 1;
      return true;
    }
    if (stop.aborted) return false;
    return await new Promise((resolve) => {
      const take = (): void => resolve(true);
      this.#waiting.add(take);
      const leave = (): void => {
        if (this.#waiting.delete(take)) resolve(false);
      };
      stop.addEventListener("abort", leave, { once: true });
    });
  }

  free(): void {
    this.#taken -= 1;
    const [next] = this.#waiting;
    if (next === undefined || this.#taken >= maxFollowed) return;
    this.#waiting.delete(next);
    this.#taken += 1;
    next();
  }
}
