import { fileURLToPath } from "node:url";
import { DeadLetters } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import type { ModelScript } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { untilAnswered, write } from "../system/answers.ts";
import { obedientModel } from "../system/model-script.ts";
import { answerTo } from "../system/sending.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";

const poison = fileURLToPath(new URL("../fixtures/poison.mjs", import.meta.url));

describe("a message that kills every worker", () => {
  let system: ProcessSystem;
  const died = Promise.withResolvers<void>();
  beforeAll(async () => {
    const script: ModelScript = async (request) => {
      // The neighbours are at work until two workers have died.
      if (request.messages.at(-1)?.text.startsWith("m") === true) await died.promise;
      return await obedientModel(request);
    };
    system = await startProcesses({
      runners: 0,
      script,
      env: { NODE_OPTIONS: `--import=${poison}` },
    });
  });
  afterAll(() => system?.close());

  /** As a supervisor does; resolves with how many have died when `over` aborts. */
  async function keepOneWorker(over: AbortSignal): Promise<number> {
    const stopped = new Promise<void>((resolve) => over.addEventListener("abort", () => resolve()));
    let deaths = 0;
    for (let worker = system.workers.at(-1); worker !== undefined && !over.aborted;) {
      await Promise.race([stopped, worker.exited]);
      if (over.aborted) break;
      deaths += 1;
      if (deaths === 2) died.resolve();
      worker = await system.start("agent-worker").catch(() => worker); // it has died before it was ready
    }
    return deaths;
  }

  it(
    "is given up after three deaths alone, and takes none of its neighbours along",
    { timeout: 400_000 },
    async () => {
      const people = Array.from({ length: 4 }, (_, at) => system.person(`person ${at}`));
      const [villain, ...others] = people;
      if (villain === undefined) throw new Error("nobody is there");
      const over = new AbortController();
      const supervising = keepOneWorker(over.signal);
      const innocent = await Promise.all(
        others.map(async (person, at) => await write(system, person, `m${at}`)),
      );
      await vi.waitUntil(() => system.model.requests.length >= others.length, {
        timeout: 60_000,
        interval: 10,
      });
      const deadly = await write(system, villain, "poison-pill");
      await untilAnswered(system, [...innocent, deadly], 300_000);
      over.abort();
      expect(await supervising).toBe(5); // two beside its neighbours, three alone
      for (const [at, message] of innocent.entries()) {
        expect(await answerTo(system, message)).toContain(`[m${at}`);
      }
      expect(await answerTo(system, deadly)).toContain("given up");
      const redis = connectRedis(system.redis.url);
      try {
        const letters = await new DeadLetters({ redis }).list(9);
        expect(letters).toMatchObject([
          { kind: "message", reason: "its worker died 3 times, with nothing else at work in it" },
        ]);
      } finally {
        await closeRedis(redis);
      }
    },
  );
});
