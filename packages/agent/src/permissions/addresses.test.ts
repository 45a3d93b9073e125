import { describe, expect, it } from "vitest";
import { addressesIn, addressKey, strangeAddresses } from "./addresses.ts";
import type { JudgedCall } from "./policy.ts";

function callOf(given: Record<string, unknown>, more: Partial<JudgedCall> & { addresses?: string[] } = {}): JudgedCall {
  const { addresses, ...rest } = more;
  const spec = { name: "t", description: "", inputSchema: {} };
  return {
    tool: {
      spec,
      effect: "pure",
      requiresApproval: false,
      timeoutMs: 1,
      ...(addresses === undefined ? {} : { addresses }),
    },
    arguments: given,
    person: { id: "ou_1", groups: [] },
    chatId: "oc_1",
    chatType: "p2p",
    rules: [],
    nowMs: 0,
    heard: { foreign: true, named: new Set() },
    ...rest,
  };
}

describe("addresses in a person's words", () => {
  it.each([
    ["see https://a.example/x?y=1.", "https://a.example/x?y=1"],
    ["（https://a.example/x）", "https://a.example/x"],
    ["[link](https://a.example/x)", "https://a.example/x"],
    ["看一下a.example/x，谢谢", "a.example/x"],
    ["http://A.example:80/x", "https://a.example/x"],
    ["例子.测试/页", "http://例子.测试/页"],
  ])("of %j name %s", (text, address) => {
    expect(addressesIn(text)).toContain(addressKey(address));
  });

  it("name no other page of the host, and no other name or password", () => {
    const named = addressesIn("https://a.example/x");
    for (const other of [
      "https://a.example/",
      "https://a.example/x?y",
      "https://u@a.example/x",
      "https://b.a.example/x",
    ]) {
      expect(named).not.toContain(addressKey(other));
    }
    expect(addressKey("http://")).toBeUndefined();
    expect(addressKey("ftp://a.example/x")).not.toBe(addressKey("https://a.example/x"));
  });
});

describe("addresses that nobody named", () => {
  it("are none as long as nothing from outside was read", () => {
    const heard = { foreign: false, named: new Set<string>() };
    expect(strangeAddresses(callOf({ url: "https://a.example" }, { heard }))).toEqual([]);
    const { heard: _heard, ...unknown } = callOf({ url: "https://a.example" });
    expect(strangeAddresses(unknown)).toEqual([]);
  });

  it("are looked for where the tool says that it has some, and nowhere else", () => {
    const given = { to: "a.example", text: "https://b.example", deep: [{ to: ["c.example"] }] };
    expect(strangeAddresses(callOf(given, { addresses: ["to"] })).toSorted()).toEqual(["a.example", "c.example"]);
    expect(strangeAddresses(callOf(given, { addresses: [] }))).toEqual([]);
    expect(strangeAddresses(callOf(given))).toEqual(["https://b.example"]);
    expect(strangeAddresses(callOf({ to: "not an address at all" }, { addresses: ["to"] }))).toHaveLength(1);
  });

  it("leave out hosts of `egress`, with their own port only and never with a password", () => {
    const left = (url: string, ...egress: string[]) => strangeAddresses(callOf({ url }, { egress })).length;
    expect(left("https://a.example/any", "a.example")).toBe(0);
    expect(left("https://b.a.example/any", "a.example")).toBe(1);
    expect(left("https://b.a.example/any", "*.a.example")).toBe(0);
    expect(left("https://a.example/any", "*.a.example")).toBe(1);
    expect(left("https://xa.example/any", "*.a.example")).toBe(1);
    expect(left("https://a.example:8443/any", "a.example")).toBe(1);
    expect(left("https://a.example:8443/any", "a.example:8443")).toBe(0);
    expect(left("https://x@a.example/any", "a.example", "*")).toBe(1);
    expect(left("https://例子.测试/any", "例子.测试")).toBe(0);
    expect(left("ftp://a.example/any", "*")).toBe(1);
  });

  it("take no time to speak of in a large input", () => {
    const startedMs = performance.now();
    strangeAddresses(callOf({ text: "a.".repeat(200_000), more: `http:${"/".repeat(200_000)}` }));
    addressesIn("a.".repeat(25_000));
    addressesIn("a-".repeat(25_000));
    expect(performance.now() - startedMs).toBeLessThan(1_000);
  });
});
