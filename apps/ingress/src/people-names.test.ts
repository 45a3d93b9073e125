import { silentLogger } from "@larkline/process/telemetry";
import { describe, expect, it } from "vitest";
import { createPeopleNames, type PeopleNamesDeps } from "./people-names.ts";

function namesWith(userNames: PeopleNamesDeps["api"]["userNames"]) {
  const remembered = new Map([["name:cli_a:ou_ann", "Ann"]]);
  return createPeopleNames({
    app: "cli_a",
    api: { userNames },
    lookups: { get: async (key) => remembered.get(key) },
    patienceMs: 50,
    logger: silentLogger,
  });
}

describe("names of people", () => {
  it("are those that are remembered, and those that the platform knows", async () => {
    const asked: (readonly string[])[] = [];
    const namesOf = namesWith(async (openIds) => {
      asked.push(openIds);
      return new Map([["ou_bob", "Bob"]]);
    });
    expect([...(await namesOf(["ou_ann", "ou_bob", "ou_bob", "ou_cai"]))]).toEqual([
      ["ou_ann", "Ann"],
      ["ou_bob", "Bob"],
    ]);
    expect(asked).toEqual([["ou_bob", "ou_cai"]]);
  });

  it.each([
    ["does not answer", async () => await new Promise<never>(() => undefined)],
    ["fails", async () => await Promise.reject(new Error("no connection"))],
  ])("are at least those that are remembered when the platform %s", async (_, userNames) => {
    expect([...(await namesWith(userNames)(["ou_ann", "ou_bob"]))]).toEqual([["ou_ann", "Ann"]]);
  });
});
