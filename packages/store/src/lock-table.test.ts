import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { expect, it, onTestFinished } from "vitest";
import { LockTable, type JobLock } from "./renewals.ts";

function lockOf(n: number): JobLock {
  return { queue: "{larkline}:turns:", id: `cli_1.oc_${n}-${n}`, token: `token:${n}` };
}

const byNumber = (one: JobLock, other: JobLock): number => Number(one.token.slice(6)) - Number(other.token.slice(6));

it("shows another holder of its memory what is held, also when it has grown", () => {
  const table = new LockTable();
  const other = new LockTable(table.buffer);
  expect(other.read()).toEqual([]);
  const releases = Array.from({ length: 300 }, (_, n) => table.add(lockOf(n)));
  expect(other.read().toSorted(byNumber)).toMatchObject(Array.from({ length: 300 }, (_, n) => lockOf(n)));
  for (const [n, release] of releases.entries()) if (n !== 7) release();
  const [held] = other.read();
  expect(other.read()).toEqual([{ ...lockOf(7), use: held?.use }]);
});

it("uses a place again under another number, and takes no release twice", () => {
  const table = new LockTable();
  const release = table.add(lockOf(1));
  const [first] = table.read();
  release();
  table.add(lockOf(2));
  release();
  const [second, ...others] = table.read();
  expect(others).toEqual([]);
  expect(second).toMatchObject(lockOf(2));
  expect(second?.use).not.toBe(first?.use);
});

it("refuses names that do not fit, and continues", () => {
  const table = new LockTable();
  expect(() => table.add({ queue: "q:", id: "i".repeat(3_000), token: "t" })).toThrow(RangeError);
  table.add(lockOf(1));
  expect(table.read()).toHaveLength(1);
});

it("never shows half of a lock to another thread", async () => {
  const table = new LockTable();
  const program = `
    import { parentPort, workerData } from "node:worker_threads";
    import { LockTable } from ${JSON.stringify(new URL("./renewals.ts", import.meta.url).href)};
    const table = new LockTable(workerData);
    let seen = 0;
    while (seen < 10_000) {
      for (const { queue, id, token } of table.read()) {
        seen += 1;
        if (queue !== "q:" || id !== token.repeat(id.length / token.length)) throw new Error(queue + id + token);
      }
    }
    parentPort.postMessage("done");`;
  const thread = new Worker(new URL(`data:text/javascript,${encodeURIComponent(program)}`), {
    workerData: table.buffer,
  });
  onTestFinished(async () => void (await thread.terminate()));
  const seen: string[] = [];
  thread.on("message", (word: string) => seen.push(word));
  const failed = once(thread, "error");
  let releases: (() => void)[] = [];
  for (let n = 0; seen.length === 0; n += 1) {
    const token = String(n % 10);
    const next = [1, 2, 3].map((times) => table.add({ queue: "q:", id: token.repeat(times * 40), token }));
    for (const release of releases) release();
    releases = next;
    if (n % 1_000 !== 0) continue;
    const [error] = await Promise.race([failed, new Promise<[]>((resolve) => void setImmediate(resolve, []))]);
    if (error !== undefined) throw error;
  }
  expect(seen).toHaveLength(1);
});
