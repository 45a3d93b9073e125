// The worker as it is, but it writes nothing down for the console: no record of a run, no count by hour and day, no
// name, no index from the messages of an answer to their run. The bench measures what that saves.

const app = new URL("../../apps/agent-worker/src/", import.meta.url);
const { RunRecords } = (await import(new URL("run-records.ts", app).href)) as {
  RunRecords: { prototype: object };
}; // as it exports it

/** What the worker reports to the records; `close` is left as it is. */
const reports = Object.getOwnPropertyNames(RunRecords.prototype).filter(
  (name) => !["constructor", "close", "watch"].includes(name),
);
const ignored = Object.fromEntries(reports.map((name) => [name, () => undefined]));
Object.assign(RunRecords.prototype, ignored, { watch: (deliveries: unknown) => deliveries });
await import(new URL("main.ts", app).href);
