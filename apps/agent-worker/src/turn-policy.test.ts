import { replaced } from "@larkline/store/testing";
import { definitionOf } from "@larkline/agent/permissions";
import { scheduleMessage } from "@larkline/agent/schedules";
import type { PermissionRule } from "@larkline/protocol/approval";
import type { Schedule, StandingApproval } from "@larkline/protocol/schedule";
import { describe, expect, it } from "vitest";
import { calling, resultsIn } from "./approval-world.fixture.ts";
import { ToolCatalog } from "./tool-catalog.ts";
import {
  append,
  inbound,
  newWorld,
  policyOf,
  servicesOf,
  session,
  settle,
  tools,
  type World,
} from "./turn-world.fixture.ts";

const onlyStaff = policyOf({
  roles: { staff: { groups: ["g_staff"] } },
  permissions: [
    { tools: ["echo"], roles: ["staff"], do: "allow" },
    { tools: ["echo"], do: "refuse", reason: "Staff only" },
  ],
});

function rule(fields: Partial<PermissionRule> = {}): PermissionRule {
  const place = { app: "cli_app", chatId: "oc_1", tool: "pay", pattern: "*" };
  const times = { createdAtMs: Date.now(), expiresAtMs: Date.now() + 60_000 };
  return { v: 1, id: "b".repeat(32), ...place, author: { id: "ou_2" }, ...times, ...fields };
}

/** Notes how often the rules of a chat are read. */
function countingRules(world: World): { reads: number } {
  const counted = { reads: 0 };
  const { rules } = world;
  world.rules = replaced(rules, {
    inForce: async (app, chatId) => {
      counted.reads += 1;
      return await rules.inForce(app, chatId);
    },
  });
  return counted;
}

describe("remembered rules", () => {
  it("let a call run without asking, and are named in its job", async () => {
    const world = newWorld();
    await world.rules.add(rule());
    await append(world, inbound("om_1", "please"));
    await settle(world, { backend: calling(["pay"]).backend });
    expect(world.carded).toEqual([]);
    expect(world.ran.size).toBe(1);
  });

  it("are not read while nothing could need them", async () => {
    const world = newWorld();
    const counted = countingRules(world);
    await append(world, inbound("om_1", "please"));
    await settle(world, { backend: calling(["echo"], ["echo", "look"]).backend });
    expect(counted.reads).toBe(0);
  });

  it("are read once per step, so that one that was revoked meanwhile does not count", async () => {
    const world = newWorld();
    const counted = countingRules(world);
    await world.rules.add(rule());
    world.outcomeOf = () => {
      void world.rules.revoke("cli_app", rule().id, { id: "ou_2" });
      return { ok: true, result: "paid" };
    };
    world.word = () => "reject";
    await append(world, inbound("om_1", "please"));
    await settle(world, { backend: calling(["pay", "pay"], ["pay"]).backend });
    // Once for each of the two steps, and once more for each of the two allowed calls before it is signed.
    expect(counted.reads).toBe(2 + 2);
    expect((await resultsIn(world)).map(([text]) => text)).toEqual([
      "paid",
      "paid",
      "User rejected this action.",
    ]);
  });
});

it("asks about a tool by the title that the configuration gives it", async () => {
  const world = newWorld();
  const services = servicesOf(world);
  const title = { zh: "付款", en: "Pay" };
  const catalog = new ToolCatalog(services.runners, services.clock, services.log, {
    titles: { pay: title, none: title },
  });
  await catalog.refresh();
  expect([catalog.titleOf("pay"), catalog.titleOf("echo")]).toEqual([title, undefined]);
  expect(catalog.names()).not.toContain("none");
});

describe("the run of a schedule", () => {
  const dueMs = 1_000;
  const schedule: Schedule = {
    id: "00000000000000aa",
    app: "cli_app",
    owner: { id: "ou_1" },
    chatId: "oc_1",
    chatType: "p2p",
    title: "Pay",
    task: "pay the rent",
    timing: { kind: "once", atMs: dueMs },
    zone: "UTC",
    missed: "late",
    language: "en",
    createdAtMs: 1,
  };

  async function runOf(world: World, more: Partial<Schedule>, stored = more): Promise<void> {
    await world.schedules.add({ ...schedule, ...stored }, { dueMs, alarmMs: dueMs });
    const run = scheduleMessage({ ...schedule, ...more }, { session, dueMs, nowMs: dueMs });
    await append(world, { ...run, reply: inbound("om_1", "x").reply });
    await settle(world, { backend: calling(["pay"]).backend });
  }

  function allowed(): StandingApproval[] {
    const { announcement } = tools.get("pay") ?? expect.fail();
    const definition = definitionOf(announcement);
    return [{ tool: "pay", arguments: {}, definition, expiresAtMs: Date.now() + 60_000 }];
  }

  it("does unasked what its person has allowed it", async () => {
    const world = newWorld();
    await runOf(world, { allowed: allowed() });
    expect(world.carded).toEqual([]);
    expect(world.ran.size).toBe(1);
  });

  it("asks where its task is another one by now", async () => {
    const world = newWorld();
    world.word = () => "reject";
    const now = { allowed: allowed(), task: "pay twice" };
    await runOf(world, { allowed: now.allowed }, now);
    expect(world.ran.size).toBe(0);
    expect((await resultsIn(world)).map(([text]) => text)).toEqual(["User rejected this action."]);
  });
});

describe("user groups", () => {
  it("decide where roles of the policy name them, and are looked up once for all calls of a step", async () => {
    const asked: string[] = [];
    const groupsOf = async (app: string, openId: string): Promise<string[]> => {
      asked.push(`${app} ${openId}`);
      return ["g_staff"];
    };
    const world = newWorld();
    await append(world, inbound("om_1", "please"));
    await settle(world, {
      backend: calling(["echo", "echo"], ["echo"]).backend,
      policy: onlyStaff,
      groupsOf,
    });
    expect(world.ran.size).toBe(3);
    expect(asked).toEqual(["cli_app ou_1", "cli_app ou_1"]);
  });

  it("are not looked up for calls whose entries name none", async () => {
    const groupsOf = async (): Promise<string[]> => await Promise.reject(new Error("looked up"));
    const world = newWorld();
    await append(world, inbound("om_1", "please"));
    await settle(world, { backend: calling(["look"]).backend, policy: onlyStaff, groupsOf });
    expect((await resultsIn(world)).map(([, isError]) => isError)).toEqual([false]);
  });

  it("that cannot be looked up allow nothing: calls that depend on them are refused, others run", async () => {
    const groupsOf = async (): Promise<string[]> =>
      await Promise.reject(new Error("the platform is away"));
    const world = newWorld();
    await append(world, inbound("om_1", "please"));
    await settle(world, {
      backend: calling(["echo", "look"]).backend,
      policy: onlyStaff,
      groupsOf,
    });
    expect(await resultsIn(world)).toEqual([
      [
        expect.stringMatching(
          /^permission_denied: it could not be checked.*user groups are not known/,
        ),
        true,
      ],
      ["c1-1", false],
    ]);
    expect(world.ran.size).toBe(1);
  });

  it("that could not be looked up are asked for again with the next step", async () => {
    let failures = 1;
    const groupsOf = async (): Promise<string[]> => {
      failures -= 1;
      return failures >= 0 ? await Promise.reject(new Error("the platform is away")) : ["g_staff"];
    };
    const world = newWorld();
    await append(world, inbound("om_1", "please"));
    await settle(world, {
      backend: calling(["echo"], ["echo"]).backend,
      policy: onlyStaff,
      groupsOf,
    });
    expect((await resultsIn(world)).map(([, isError]) => isError)).toEqual([true, false]);
  });

  it("are not those of a person who comes over HTTP", async () => {
    const groupsOf = async (): Promise<string[]> => ["g_staff"];
    const world = newWorld();
    await append(world, inbound("om_1", "please", { chatType: "api", reply: { channel: "none" } }));
    await settle(world, { backend: calling(["echo"]).backend, policy: onlyStaff, groupsOf });
    expect(await resultsIn(world)).toEqual([
      ["permission_denied: Staff only. The call was not run.", true],
    ]);
    expect(await world.store.summary(session)).toMatchObject({ state: "idle" });
  });
});
