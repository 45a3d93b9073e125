import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { AgentVersions } from "./agent-versions.ts";
import type { AuditLog } from "./audit-log.ts";

export interface AgentVersionsHarness {
  /** Three versions of an agent are kept. */
  versions: AgentVersions;
  /** The same as another worker has them. */
  elsewhere: AgentVersions;
  /** With the key of another deployment. */
  foreign: AgentVersions;
  audit: AuditLog;
  /** What is stored in a field. */
  read(field: string): Promise<string>;
  write(field: string, text: string): Promise<void>;
  /** As if nothing had ever been stored. */
  lose(): Promise<void>;
  close(): Promise<void>;
}

/** What AgentVersions promise. Call it at the top level of a test file. */
export function describeAgentVersions(
  name: string,
  makeHarness: () => Promise<AgentVersionsHarness>,
): void {
  describe(`${name}: versions of agents`, () => {
    let harness: AgentVersionsHarness;
    let versions: AgentVersions;
    let elsewhere: AgentVersions;

    beforeEach(async () => {
      harness = await makeHarness();
      ({ versions, elsewhere } = harness);
    });
    afterEach(async () => await harness.close());

    const about = { agent: "sales", by: "console:Ann", atMs: 1_000, file: "f1" };
    const add = async (base: number, instructions: string, at = versions, agent = "sales") =>
      await at.add({ ...about, agent, base, change: { instructions } });
    const numbersOf = (at: AgentVersions, agent = "sales"): number[] =>
      (at.known().get(agent) ?? []).map(({ number }) => number);

    it("count up for each agent, with a record of each in the same step", async () => {
      expect(await add(0, "one")).toBe("done");
      expect(await add(1, "two", elsewhere)).toBe("done");
      expect(await add(0, "other", versions, "default")).toBe("done");
      await elsewhere.refresh();
      const known = elsewhere.known();
      expect(known.get("sales")).toMatchObject([
        {
          number: 1,
          revision: 1,
          change: { instructions: "one" },
          by: "console:Ann",
          atMs: 1_000,
          file: "f1",
        },
        { number: 2, revision: 2, change: { instructions: "two" } },
      ]);
      expect(known.get("default")).toMatchObject([{ number: 1, revision: 3 }]);
      const records = [];
      for await (const record of harness.audit.export(0, Number.MAX_SAFE_INTEGER)) {
        records.push(record);
      }
      expect(records).toMatchObject([
        { kind: "agent_changed", agent: "sales", userId: "console:Ann", from: 0, to: 1 },
        { kind: "agent_changed", agent: "sales", from: 1, to: 2 },
        { kind: "agent_changed", agent: "default", from: 0, to: 1 },
      ]);
    });

    it("of two operators at once one is refused, and nothing of it is stored; other agents are no conflict", async () => {
      const at = [versions, elsewhere];
      const one = await Promise.all(
        at.map(async (where, index) => await add(0, `sales ${index}`, where)),
      );
      expect(one.toSorted()).toEqual(["conflict", "done"]);
      const names = Array.from({ length: 10 }, (_none, index) => `a${index}`);
      const others = await Promise.all(
        names.map(async (agent, index) => await add(0, "x", at[index % 2], agent)),
      );
      expect(new Set(others)).toEqual(new Set(["done"]));
      await versions.refresh();
      expect(numbersOf(versions)).toEqual([1]);
      const revisions = [...versions.known().values()].flat().map(({ revision }) => revision);
      expect(revisions.toSorted((a, b) => a - b)).toEqual(
        Array.from({ length: 11 }, (_none, index) => index + 1),
      );
      expect((await versions.list()).heads.get("sales")).toBe(1);
    });

    it("keep the last ones of an agent", async () => {
      for (const base of [0, 1, 2, 3]) expect(await add(base, `number ${base + 1}`)).toBe("done");
      await elsewhere.refresh();
      expect(numbersOf(elsewhere)).toEqual([2, 3, 4]);
      expect(await add(4, "five")).toBe("done");
      await elsewhere.refresh();
      expect(numbersOf(elsewhere)).toEqual([3, 4, 5]);
    });

    it("are not believed with another key, an edited text, in another place, or unreadable; the console sees which", async () => {
      await add(0, "good");
      await add(0, "forged", harness.foreign, "expert");
      await add(1, "edited");
      const sealed = await harness.read("version:sales:2");
      await harness.write("version:sales:2", sealed.replace("edited", "EDITED"));
      await harness.write("version:sales:3", await harness.read("version:sales:1"));
      await harness.write("version:default:1", "x".repeat(100_000));
      const places = [
        { agent: "default", number: 1 },
        { agent: "expert", number: 1 },
        { agent: "sales", number: 2 },
        { agent: "sales", number: 3 },
      ];
      const byPlace = (refused: { agent: string; number: number }[]) =>
        refused.toSorted((a, b) => a.agent.localeCompare(b.agent) || a.number - b.number);
      expect(byPlace((await elsewhere.refresh()).refused)).toEqual(places);
      expect([...elsewhere.known().keys()]).toEqual(["sales"]);
      expect(numbersOf(elsewhere)).toEqual([1]);
      const { refused, versions: shown, inForce } = await elsewhere.list();
      expect([...inForce.values()]).toMatchObject([{ agent: "sales", number: 1 }]);
      expect(new Set(refused.map((one) => JSON.stringify(one)))).toEqual(
        new Set(places.map((one) => JSON.stringify(one))),
      );
      expect(shown.get("sales")?.[0]).toMatchObject({ number: 2 });
    });

    it("that a worker with another key has refused count for people who look as soon as one finds them right", async () => {
      await add(0, "good");
      expect((await harness.foreign.refresh()).refused).toEqual([{ agent: "sales", number: 1 }]);
      expect((await versions.list()).inForce.size).toBe(0);
      await versions.refresh();
      expect(await versions.list()).toMatchObject({ refused: [] });
      expect((await versions.list()).inForce.get("sales")).toMatchObject({ number: 1 });
    });

    it("that a worker has found right stay as they were when they are edited", async () => {
      await add(0, "good");
      await versions.refresh();
      await harness.write(
        "version:sales:1",
        (await harness.read("version:sales:1")).replace("good", "evil"),
      );
      await add(0, "other", elsewhere, "default");
      await versions.refresh();
      expect(versions.known().get("sales")).toMatchObject([{ change: { instructions: "good" } }]);
    });

    it("that a failover has lost make room for others with their numbers, on every worker", async () => {
      await add(0, "first");
      const before = await harness.read("version:sales:1");
      await add(1, "lost");
      await Promise.all([versions.refresh(), elsewhere.refresh()]);
      await harness.lose();
      expect(await add(0, "first")).toBe("done");
      expect(await harness.read("version:sales:1")).toBe(before);
      expect(await add(1, "second", elsewhere)).toBe("done");
      for (const worker of [versions, elsewhere]) {
        await worker.refresh();
        expect(worker.known().get("sales")).toMatchObject([
          {},
          { number: 2, change: { instructions: "second" } },
        ]);
      }
      await harness.lose();
      await versions.refresh();
      expect(versions.known().size).toBe(0);
    });

    it("reach a worker that watches; one that looks when nothing is new reads one field", async () => {
      const watching = new AbortController();
      await elsewhere.watch(() => void elsewhere.refresh(), watching.signal);
      await add(0, "one");
      await vi.waitFor(() => expect(numbersOf(elsewhere)).toEqual([1]), { timeout: 60_000 });
      watching.abort();
      expect(await elsewhere.refresh()).toEqual({ isNew: false, refused: [] });
    });
  });
}
