import { openTestStores } from "@larkline/store/testing";
import { describe, expect, it } from "vitest";
import { failureOf, replacing, simulatedApi } from "../simulated-api.fixture.ts";
import { GroupLookup } from "./group-lookup.ts";

async function groupWorld() {
  const { lookups, advance } = openTestStores();
  const world = await simulatedApi({ api: { timeoutMs: 10_000 } });
  const asked = () =>
    world.simulator.apiCalls.filter(({ path }) => path.endsWith("/member_belong")).length;
  const lookup = new GroupLookup({ api: world.api, lookups, timeoutMs: 20_000 });
  return { ...world, lookups, lookup, asked, forward: (ms: number): void => void advance(ms) };
}

describe("the user groups of a person", () => {
  it("are those with members of their own and those that follow a rule, and none for most people", async () => {
    const { simulator, person, lookup } = await groupWorld();
    expect(await lookup.groupsOf(person.openId)).toEqual([]);
    const other = simulator.addUser({ name: "Bob" });
    simulator.addUserGroup({ groupId: "og-1", members: [other.openId] });
    simulator.addUserGroup({ groupId: "og-2", dynamic: true, members: [other.openId] });
    expect(await lookup.groupsOf(other.openId)).toEqual(["og-1", "og-2"]);
  });

  it("come in pages", async () => {
    const { simulator, person, lookup, asked } = await groupWorld();
    const members = [person.openId];
    const ids = Array.from({ length: 2_500 }, (_, index) =>
      simulator.addUserGroup({ members, groupId: `og-${index}` }),
    );
    expect(await lookup.groupsOf(person.openId)).toHaveLength(ids.length);
    expect(asked()).toBe(4);
  });

  it("are asked for once in five minutes, by however many at once", async () => {
    const { simulator, person, lookup, asked, forward } = await groupWorld();
    simulator.addUserGroup({ groupId: "og-1", members: [person.openId] });
    const answers = await Promise.all(
      [1, 2, 3].map(async () => await lookup.groupsOf(person.openId)),
    );
    expect(answers).toEqual([["og-1"], ["og-1"], ["og-1"]]);
    simulator.addUserGroup({ groupId: "og-1", members: [] });
    expect(await lookup.groupsOf(person.openId)).toEqual(["og-1"]);
    expect(asked()).toBe(2);
    forward(5 * 60_000 + 1);
    expect(await lookup.groupsOf(person.openId)).toEqual([]);
  });

  it("are no fact while the platform does not tell them: the error says why, and is not remembered", async () => {
    const { simulator, person, lookup, appId } = await groupWorld();
    simulator.setConsole(appId, { scopes: [] });
    const missing = await failureOf(lookup.groupsOf(person.openId));
    expect(missing).toMatchObject({
      kind: "app_setup",
      message: expect.stringContaining("contact:group:readonly"),
    });
    simulator.setConsole(appId, {});
    simulator.setNameScope(appId, "hidden");
    expect(await failureOf(lookup.groupsOf(person.openId))).toMatchObject({
      kind: "forbidden",
      code: 41050,
    });
    simulator.setNameScope(appId, "granted");
    expect(await lookup.groupsOf(person.openId)).toEqual([]);
    expect(await failureOf(lookup.groupsOf("ou_nobody"))).toMatchObject({ kind: "bad_request" });
  });

  it("are waited for no longer than a click can wait", async () => {
    const { simulator, person, lookups, connect } = await groupWorld();
    simulator.faults.add({ match: { path: /member_belong$/ }, action: { kind: "hang" } });
    const api = connect({ timeoutMs: 60_000 });
    const lookup = new GroupLookup({ api, lookups, timeoutMs: 50 });
    await failureOf(lookup.groupsOf(person.openId));
  });

  it("come from the platform while the cache fails or holds something else", async () => {
    const { simulator, api, person, lookups } = await groupWorld();
    simulator.addUserGroup({ groupId: "og-1", members: [person.openId] });
    const down = async () => await Promise.reject(new Error("down"));
    const without = new GroupLookup({
      api,
      lookups: replacing(lookups, { get: down, set: down }),
      timeoutMs: 20_000,
    });
    expect(await without.groupsOf(person.openId)).toEqual(["og-1"]);
    for (const kept of ["no JSON", '{"a":1}', "[1]"]) {
      const strange = new GroupLookup({
        api,
        lookups: replacing(lookups, { get: async () => kept }),
        timeoutMs: 20_000,
      });
      expect(await strange.groupsOf(person.openId)).toEqual(["og-1"]);
    }
  });
});
