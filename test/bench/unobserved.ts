// The worker as it is, but it writes nothing down for the console: no record of a run, no count by hour and day, no
// name, no index from the messages of an answer to their run. The bench measures what that saves.

const app = new URL("../../apps/agent-worker/src/", import.meta.url);
const { RunRecords } = (await import(new URL("run-records.ts", app).href)) as { RunRecords: { prototype: object } }; // as it exports it

const ignore = (): void => undefined;
const replaced = { ended: ignore, sent: ignore, waited: ignore, watch: (deliveries: unknown) => deliveries };
const methods = Object.getOwnPropertyNames(RunRecords.prototype).filter(
  (name) => !["constructor", "close"].includes(name),
);
if (methods.toSorted().join() !== Object.keys(replaced).toSorted().join()) {
  throw new Error(`RunRecords has other methods than those that are replaced: ${methods.join()}`);
}
Object.assign(RunRecords.prototype, replaced);
await import(new URL("main.ts", app).href);
