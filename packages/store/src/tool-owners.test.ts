import { announcementMac } from "@larkline/protocol/runner";
import type { ToolAnnouncement } from "@larkline/protocol/tool";
import { describe, expect, it } from "vitest";
import { RunnerDirectory, type ToolOwners } from "./runner-directory.ts";
import { openTestStores } from "./testing.ts";

const longMs = 3_600_000;
const keyOf = (runner: string): string => `key of ${runner}`;

function tool(name: string, requiresApproval = true): ToolAnnouncement {
  const spec = { name, description: "", inputSchema: { type: "object" } };
  return { spec, effect: "once", requiresApproval, timeoutMs: 1_000 };
}

function open(configured: readonly (readonly [string, string])[] = []) {
  const stores = openTestStores();
  const { redis, namespace } = stores;
  const here = { redis, namespace };
  const keys = { runnerKeys: { of: keyOf } };
  const worker = (owners: ToolOwners = new Map(configured)) =>
    new RunnerDirectory({ ...here, ...keys, owners });
  const runner = (name: string) => new RunnerDirectory({ ...here, runnerKey: keyOf(name) });
  const announce = async (name: string, ...tools: ToolAnnouncement[]) =>
    await runner(name).announce({ runner: name, instance: `of ${name}`, tools }, longMs);
  /** What someone with the Redis user and the key of a runner can store, whatever the script would say to it. */
  const forge = async (
    name: string,
    tools: ToolAnnouncement[],
    times = { beganAtMs: 0, expiresAtMs: 9e12 },
  ) => {
    const facts = {
      runner: name,
      instance: "forged",
      generation: "",
      offer: JSON.stringify(tools),
      ...times,
    };
    const digests = Object.fromEntries(tools.map(({ spec }) => [spec.name, "x"]));
    const json = JSON.stringify({ ...facts, digests, mac: announcementMac(facts, keyOf(name)) });
    await redis.hset(`{${namespace}}:runners:${name}`, "forged", json);
    await redis.sadd(`{${namespace}}:runner-names`, name);
  };
  return { ...stores, worker, announce, forge, runner };
}

describe("the owner of a tool's name", () => {
  it("is the runner that offered it first, whatever a stolen runner announces and since when", async () => {
    const { worker, announce, forge } = open();
    await announce("safe", tool("deploy"));
    expect((await worker().tools()).get("deploy")?.runner).toBe("safe");
    await forge("thief", [tool("deploy", false), tool("other")]);
    const { tools, clashes } = await worker().view(); // one that has just started
    expect(tools.get("deploy")).toMatchObject({
      runner: "safe",
      announcement: { requiresApproval: true },
    });
    expect(tools.get("other")?.runner).toBe("thief");
    expect(clashes).toEqual([{ tool: "deploy", owner: "safe", runner: "thief" }]);
    expect(await announce("safe", tool("deploy"))).toEqual({ ok: true, isCurrent: true });
  });

  it("is reported to a runner that offers the same name, also while the owner is away", async () => {
    const { worker, announce, runner } = open();
    await announce("first", tool("deploy"));
    await worker().tools();
    await runner("first").withdraw("first", "of first");
    const refused = {
      ok: false,
      tool: "deploy",
      conflict: "a tool named 'deploy' belongs to runner 'first'",
    };
    expect(await announce("second", tool("deploy"))).toEqual(refused);
  });

  it("is free again when an operator has had the runner forgotten", async () => {
    const { worker, announce, runner } = open();
    await announce("first", tool("deploy"));
    await worker().tools();
    await runner("first").withdraw("first", "of first");
    expect(await worker().forget("first")).toEqual({ forgotten: true, living: 0 });
    expect(await announce("second", tool("deploy"))).toEqual({ ok: true, isCurrent: true });
    expect((await worker().tools()).get("deploy")?.runner).toBe("second");
  });

  it("is the one of the configuration, by name, then by the longest prefix", async () => {
    const { worker, announce, forge } = open([
      ["mail_*", "mail"],
      ["mail_list", "lists"],
      ["*", "rest"],
    ]);
    await forge("thief", [
      tool("mail_send", false),
      tool("mail_list", false),
      tool("constructor", false),
    ]);
    expect([...(await worker().view()).tools]).toEqual([]);
    await announce("mail", tool("mail_send"));
    await announce("lists", tool("mail_list"));
    await announce("rest", tool("constructor"));
    const { tools, clashes } = await worker().view();
    expect([...tools].map(([name, { runner }]) => [name, runner]).sort()).toEqual([
      ["constructor", "rest"],
      ["mail_list", "lists"],
      ["mail_send", "mail"],
    ]);
    expect(clashes.map((clash) => clash.runner)).toEqual(["thief", "thief", "thief"]);
  });

  it("changes with the configuration", async () => {
    const { worker, announce } = open();
    await announce("old", tool("deploy"));
    await worker().tools();
    const moved = worker(new Map([["deploy", "new"]]));
    expect((await moved.view()).clashes).toEqual([{ tool: "deploy", owner: "new", runner: "old" }]);
    expect(await announce("new", tool("deploy"))).toEqual({ ok: true, isCurrent: true });
    expect((await moved.tools()).get("deploy")?.runner).toBe("new");
    const byPrefix = worker(new Map([["dep*", "new"]]));
    await byPrefix.tools();
    expect(await announce("third", tool("deposit"))).toMatchObject({ ok: false });
    await worker().tools();
    expect(await announce("third", tool("deposit"))).toMatchObject({ ok: true });
  });
});

describe("the times of an announcement", () => {
  it("are signed: none is good for longer than its runner has said", async () => {
    const { worker, announce, advance, redis, namespace } = open();
    await announce("safe", tool("deploy", false));
    const key = `{${namespace}}:runners:safe`;
    const stored = (await redis.hget(key, "of safe")) ?? "";
    expect((await worker().tools()).get("deploy")?.runner).toBe("safe");
    for (const field of ["expiresAtMs", "beganAtMs"]) {
      await redis.hset(
        key,
        "of safe",
        stored.replace(new RegExp(`"${field}":\\d+`), `"${field}":9000000000000`),
      );
      expect((await worker().tools()).get("deploy")).toBeUndefined();
    }
    await redis.hset(key, "of safe", stored);
    await advance(longMs + 600_001);
    await redis.hset(key, "of safe", stored);
    expect((await worker().tools()).get("deploy")).toBeUndefined();
  });
});
