import { EventEmitter, once } from "node:events";
import type { EventRecord, SessionKey } from "@larkline/protocol";
import type { EventLog, FencedWrite } from "./session-store.ts";

const keptEvents = 1_000;
const pageSize = 256;

interface SessionEvents {
  lastSeq: number;
  kept: EventRecord[];
}

/** The events of all sessions; keeps the newest 1,000 of each. */
export class MemoryEventLog implements EventLog {
  readonly #sessions = new Map<SessionKey, SessionEvents>();
  readonly #appended = new EventEmitter().setMaxListeners(0);

  /** Numbers and keeps the events, then tells the followers. */
  add(session: SessionKey, events: FencedWrite["events"]): void {
    if (events.length === 0) return;
    const log = this.#sessions.get(session) ?? { lastSeq: 0, kept: [] };
    for (const { runId, event } of events) {
      log.lastSeq += 1;
      log.kept.push({ seq: log.lastSeq, runId, event: structuredClone(event) });
    }
    log.kept.splice(0, log.kept.length - keptEvents);
    this.#sessions.set(session, log);
    this.#appended.emit(session);
  }

  /** What happened is forgotten; the numbers go on. */
  clear(session: SessionKey): void {
    this.#sessions.get(session)?.kept.splice(0);
  }

  lastSeq(session: SessionKey): number {
    return this.#sessions.get(session)?.lastSeq ?? 0;
  }

  async read(session: SessionKey, afterSeq: number, limit: number): Promise<EventRecord[]> {
    return this.#page(session, afterSeq, limit);
  }

  #page(session: SessionKey, afterSeq: number, limit: number): EventRecord[] {
    const kept = this.#sessions.get(session)?.kept ?? [];
    const start = Math.max(0, afterSeq + 1 - (kept[0]?.seq ?? 1));
    return structuredClone(kept.slice(start, start + limit));
  }

  async *follow(
    session: SessionKey,
    afterSeq: number,
    signal: AbortSignal,
  ): AsyncGenerator<EventRecord | undefined, void> {
    let last = afterSeq;
    while (!signal.aborted) {
      const page = this.#page(session, last, pageSize);
      const [first] = page;
      if (!first) {
        await this.#nextAppend(session, signal);
        continue;
      }
      if (first.seq > last + 1) yield undefined;
      for (const record of page) {
        if (signal.aborted) return;
        yield record;
        last = record.seq;
      }
    }
  }

  async #nextAppend(session: SessionKey, signal: AbortSignal): Promise<void> {
    try {
      await once(this.#appended, session, { signal });
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }
}
