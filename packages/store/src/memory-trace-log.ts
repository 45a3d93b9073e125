import type { TraceEntry, TraceId } from "@larkline/protocol";
import {
  defaultTraceTtlMs,
  keptHeadEntries,
  maxTraceEntries,
  maxTracesOfSubject,
  subjectKinds,
  type TraceLog,
} from "./trace-log.ts";

export interface MemoryTraceLogOptions {
  ttlMs?: number;
  /** Epoch ms. */
  now?: () => number;
}

/** Traces in the memory of this process. */
export function createMemoryTraceLog(options: MemoryTraceLogOptions = {}): TraceLog {
  const { ttlMs = defaultTraceTtlMs, now = Date.now } = options;
  const traces = new Map<TraceId, { entries: TraceEntry[]; untilMs: number }>();
  const indexes = new Map<string, { found: Map<TraceId, number>; untilMs: number }>();

  function alive<T extends { untilMs: number }>(kept: ReadonlyMap<string, T>, key: string): T | undefined {
    const one = kept.get(key);
    return one !== undefined && one.untilMs > now() ? one : undefined;
  }

  const note = (key: string, traceId: TraceId): void => {
    const found = alive(indexes, key)?.found ?? new Map<TraceId, number>();
    found.delete(traceId);
    found.set(traceId, now());
    const [oldest] = found.keys();
    if (found.size > maxTracesOfSubject && oldest !== undefined) found.delete(oldest);
    indexes.set(key, { found, untilMs: now() + ttlMs });
  };

  return {
    append: async (writes) => {
      for (const { traceId, entries: added, subject } of writes) {
        const entries = [...(alive(traces, traceId)?.entries ?? []), ...structuredClone(added)];
        const over = entries.length - maxTraceEntries;
        if (over > 0) entries.splice(keptHeadEntries, over);
        if (added.length > 0) traces.set(traceId, { entries, untilMs: now() + ttlMs });
        for (const kind of subjectKinds) {
          const id = subject?.[kind];
          if (id !== undefined) note(`${kind} ${id}`, traceId);
        }
      }
    },
    read: async (traceId) => structuredClone(alive(traces, traceId)?.entries ?? []),
    find: async (kind, id, limit) => {
      const found = [...(alive(indexes, `${kind} ${id}`)?.found ?? [])];
      return found
        .map(([traceId, atMs]) => ({ traceId, atMs }))
        .toReversed()
        .slice(0, limit);
    },
  };
}
