import type { AuditRecord } from "@larkline/protocol";
import type { AuditLog } from "./approval-store.ts";

/** The audit log of a memory store. Its own writers use `write`, which does not wait. */
export class MemoryAuditLog implements AuditLog {
  readonly #records: AuditRecord[] = [];
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
}
