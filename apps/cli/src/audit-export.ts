import { once } from "node:events";
import type { Writable } from "node:stream";
import { AuditLog, closeRedis, connectRedis } from "@larkline/store";
import { within } from "./deadline.ts";

export interface AuditExport {
  redisUrl: string;
  namespace: string;
  /** Epoch ms: records from the first to before the second. */
  fromMs: number;
  toMs: number;
  output: Writable;
}

/** How long Redis may take for some records. */
const patienceMs = 10_000;

/** Writes records as JSON, one a line, in the order of their time. Rejects when Redis does not answer. */
export async function exportAudit({ redisUrl, namespace, fromMs, toMs, output }: AuditExport): Promise<void> {
  let lastError: Error | undefined;
  const redis = connectRedis(redisUrl, { onError: (error) => (lastError = error) });
  try {
    const records = new AuditLog({ redis, namespace }).export(fromMs, toMs)[Symbol.asyncIterator]();
    for (;;) {
      const next = await within(patienceMs, async () => await records.next());
      if (next.done === true) return;
      if (!output.write(`${JSON.stringify(next.value)}\n`)) await once(output, "drain");
    }
  } catch (error) {
    // A connection that fails says more than the wait that it ended.
    throw lastError ?? error;
  } finally {
    await closeRedis(redis);
  }
}
