import type { AuditRecord } from "@larkline/protocol";
import type { AuditLog } from "./approval-store.ts";
import type { AuditBounds, AuditEntry, AuditPlace, AuditRetention } from "./retention.ts";

/** The audit log of a memory store. Its own writers use `write`, which does not wait. */
export class MemoryAuditLog implements AuditLog, AuditRetention {
  #records: AuditRecord[] = [];
  /** How many records were dropped. */
  #dropped = 0;
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  write(record: Omit<AuditRecord, "atMs">): void {
    this.#records.push({ ...structuredClone(record), atMs: this.#now() });
  }

  async append(record: Omit<AuditRecord, "atMs">): Promise<void> {
    this.write(record);
  }

  async *export(fromMs: number, toMs: number): AsyncIterable<AuditRecord> {
    const during = this.#records.filter(({ atMs }) => atMs >= fromMs && atMs < toMs);
    for (const record of during.sort((one, other) => one.atMs - other.atMs)) yield structuredClone(record);
  }

  parts(): readonly string[] {
    return ["all"];
  }

  #entries(): AuditEntry[] {
    return this.#records.map((record, at) => ({ atMs: record.atMs, number: this.#dropped + at, record }));
  }

  async page(_part: string, after: AuditPlace | undefined, limit: number): Promise<AuditEntry[]> {
    const later = this.#entries().filter(({ number }) => after === undefined || number > after.number);
    return structuredClone(later.slice(0, limit));
  }

  async trim(_part: string, { beforeMs, maxRecords, archived }: AuditBounds): Promise<number> {
    const first = this.#records.length - maxRecords;
    const lastArchived = archived === undefined ? Infinity : (archived.upTo?.number ?? -1);
    const kept = this.#entries().findIndex(
      ({ atMs, number }, at) => number > lastArchived || (atMs >= beforeMs && at >= first),
    );
    const count = kept < 0 ? this.#records.length : kept;
    this.#records = this.#records.slice(count);
    this.#dropped += count;
    return count;
  }
}
