import { createProcessPool } from "./process-pool.ts";

// A process with a pool, one child busy and blocked, one idle. Says what they are, and is killed by the test.
const pool = createProcessPool({
  entry: new URL("./echo-child.fixture.ts", import.meta.url),
  size: 2,
});
const options = {
  signal: new AbortController().signal,
  timeoutMs: 600_000,
  onEvent: () => {},
  onRequest: async () => null,
};
const facts = (await pool.call({ deed: "facts" }, options)) as { pid: number }; // the fixture's answer
void pool.call({ deed: "blockInProgram" }, options).catch(() => {});
void pool.call({ deed: "loop" }, options).catch(() => {});
process.stdout.write(`${facts.pid}\n`);
