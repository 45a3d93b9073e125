import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { maxRunBytes, placeOfRun, type RunLog, type RunRecord, sessionOfRun } from "./runs.ts";
import { runOf } from "./testing.ts";

/** A log of runs under test with storage of its own. */
export interface RunLogHarness {
  log: RunLog;
  /** The same log as another process sees it. */
  elsewhere: RunLog;
  now(): number;
  /** Resolves when so much time has passed. */
  advance(ms: number): Promise<void>;
  /** All lines as they are stored. */
  left(): Promise<string>;
  close(): Promise<void>;
}

/** What every RunLog promises. Call it at the top level of a test file. */
export function describeRunLog(
  name: string,
  makeHarness: (ttlMs: number) => Promise<RunLogHarness>,
): void {
  describe(`${name}: log of runs`, () => {
    const ttlMs = 3 * 3_600_000;
    let harness: RunLogHarness;
    let log: RunLog;
    let elsewhere: RunLog;

    beforeEach(async () => {
      harness = await makeHarness(ttlMs);
      ({ log, elsewhere } = harness);
    });
    afterEach(async () => await harness.close());

    function ended(number: number, fields: Partial<RunRecord> = {}): RunRecord {
      return runOf({ turn: `cli_1.oc_1-${number}`, endedAtMs: harness.now(), ...fields });
    }

    async function numbersOf(
      query: Partial<Parameters<RunLog["page"]>[0]> = {},
    ): Promise<number[]> {
      const { runs } = await elsewhere.page({ limit: 100, ...query });
      return runs.map(({ turn }) => Number(turn.slice(turn.lastIndexOf("-") + 1)));
    }

    it("lists what any process has written, the newest first, and gives whole records back", async () => {
      const tools = { tools: { search: 3 }, failedTools: { search: 1 } };
      const full = ended(1, { firstMs: 500, waitedMs: 20, ...tools });
      await log.append([full, ended(2)]);
      await harness.advance(700_000);
      await elsewhere.append([ended(3)]);
      expect(await numbersOf()).toEqual([3, 2, 1]);
      expect((await log.page({ limit: 3 })).runs.at(-1)).toEqual(full);
      expect([sessionOfRun(full), placeOfRun(full)]).toEqual([
        "cli_1.oc_1",
        { app: "cli_1", chat: "oc_1" },
      ]);
      expect(placeOfRun({ turn: `cli_1.oc_1~${"a".repeat(20)}-1` })).toEqual({
        app: "cli_1",
        chat: "oc_1",
      });
    });

    it("finds what a vendor said, and content only where that is asked for", async () => {
      const [problem, toolProblem] = ["Your credit balance is too low", "HTTP 503 from the wiki"];
      await log.append([
        ended(1, { problem, outcome: "api_bad_request" }),
        ended(2, { asked: "Where is the wiki?", toolProblem }),
      ]);
      expect(await numbersOf({ texts: ["credit BALANCE"] })).toEqual([1]);
      expect(await numbersOf({ texts: ["503"] })).toEqual([]);
      expect(await numbersOf({ texts: ["503"], inContent: true })).toEqual([2]);
      expect(await numbersOf({ texts: ["where is"], inContent: true })).toEqual([2]);
    });

    it("continues where a page has ended, whatever is written meanwhile, until nothing is left", async () => {
      for (let number = 1; number <= 5; number += 1) {
        await log.append([ended(number)]);
        if (number === 3) await harness.advance(700_000);
      }
      const seen: string[] = [];
      let after: string | undefined;
      do {
        const { runs, next } = await elsewhere.page({
          limit: 2,
          ...(after === undefined ? {} : { after }),
        });
        seen.push(runs.map(({ turn }) => turn.at(-1)).join(""));
        await log.append([ended(9)]);
        after = next;
      } while (after !== undefined);
      expect(seen.filter((page) => page !== "")).toEqual(["54", "32", "1"]);
    });

    it("shows those that are meant: by a part of their text, by what they are, and by time", async () => {
      await log.append([
        ended(1, { person: "ou_ann" }),
        ended(2, { person: "ou_bob", outcome: "timeout" }),
      ]);
      const betweenMs = harness.now() + 30_000;
      await harness.advance(60_000);
      await log.append([ended(3, { person: "ou_ann", outcome: "timeout" })]);
      expect(await numbersOf({ texts: ["ou_ann"] })).toEqual([3, 1]);
      expect(await numbersOf({ texts: ["ou_nobody", "-2"] })).toEqual([2]);
      expect(await numbersOf({ texts: ["TimeOut"] })).toEqual([3, 2]);
      // Names of fields, and numbers, are no part of it.
      for (const text of ["person", "tokens", "1200", '"']) {
        expect(await numbersOf({ texts: [text] })).toEqual([]);
      }
      expect(await numbersOf({ matches: ({ outcome }) => outcome === "timeout" })).toEqual([3, 2]);
      expect(await numbersOf({ sinceMs: betweenMs })).toEqual([3]);
      expect(await numbersOf({ untilMs: betweenMs })).toEqual([2, 1]);
    });

    it("finds a run by the messages that show its answer", async () => {
      await log.append([ended(1), ended(2)]);
      await harness.advance(700_000);
      await elsewhere.append([], [{ sent: ["om_card", "om_more"], of: "cli_1.oc_1-1" }]);
      expect(await numbersOf({ texts: ["om_more"] })).toEqual([1]);
      expect(await numbersOf({ texts: ["om_other"] })).toEqual([]);
      expect(await numbersOf()).toEqual([2, 1]);
    });

    it("shows a run once that was written twice, because an answer of Redis was lost", async () => {
      await log.append([ended(1)]);
      await elsewhere.append([ended(1), ended(2)]);
      expect(await numbersOf()).toEqual([2, 1]);
    });

    it("forgets runs when their time is over", async () => {
      await log.append([ended(1)]);
      await harness.advance(ttlMs - 60_000);
      await log.append([ended(2)]);
      expect(await numbersOf()).toEqual([2, 1]);
      await harness.advance(120_000);
      expect(await numbersOf()).toEqual([2]);
      await harness.advance(ttlMs);
      expect(await numbersOf()).toEqual([]);
    });

    it("forgets the runs of one person, and of sessions that are theirs as a whole", async () => {
      await log.append([
        ended(1, { person: "ou_ann" }),
        ended(2, { person: "ou_bob" }),
        ended(3, { person: "ou_ann", turn: "cli_2.oc_1-3" }),
        ended(4, { person: "ou_bob", turn: "cli_1.oc_own-4" }),
        ended(5, { person: "ou_anna" }),
      ]);
      await log.append([], [{ sent: ["om_own"], of: "cli_1.oc_own-4" }]);
      const [first] = (await log.page({ limit: 1 })).runs;
      expect(first?.turn).toBe("cli_1.oc_1-5");
      const { next = "" } = await log.page({ limit: 1 });
      expect(await elsewhere.erase("cli_1", "ou_ann", ["cli_1.oc_own"])).toBe(2);
      expect(await numbersOf()).toEqual([5, 3, 2]);
      expect(await harness.left()).not.toContain("oc_own");
      // A page that was open continues at its place.
      expect(await numbersOf({ after: next })).toEqual([3, 2]);
      expect(await log.erase("cli_1", "ou_ann", ["cli_1.oc_own"])).toBe(0);
    });

    it("keeps a record within its size, and what names the run in it", async () => {
      const tools = Object.fromEntries(
        Array.from({ length: 20 }, (_, at) => [`tool-${at}-${"x".repeat(40)}`, 1]),
      );
      const long = "m".repeat(300);
      const turn = `api.${"s".repeat(200)}-12`;
      await log.append([
        ended(1, { tools }),
        ended(2, { turn, message: long, person: long, model: long, agent: long }),
      ]);
      const { runs } = await log.page({ limit: 2 });
      for (const run of runs) {
        expect(Buffer.byteLength(JSON.stringify(run))).toBeLessThanOrEqual(maxRunBytes);
      }
      expect(runs).toMatchObject([
        { turn },
        { turn: "cli_1.oc_1-1", person: "ou_1", message: "om_1" },
      ]);
    });
  });
}
