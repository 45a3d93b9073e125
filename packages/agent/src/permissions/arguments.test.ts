import { describe, expect, it } from "vitest";
import { addressesIn, addressKey, strangeAddresses, riskOf, maskedArguments } from "./arguments.ts";
import type { PolicyCall } from "./policy.ts";

function callOf(
  given: Record<string, unknown>,
  more: Partial<PolicyCall> & { addresses?: string[] } = {},
): PolicyCall {
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
    addressContext: { foreign: true, named: new Set() },
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

describe("addresses that no person named", () => {
  it("are none as long as nothing from outside was read", () => {
    const addressContext = { foreign: false, named: new Set<string>() };
    expect(strangeAddresses(callOf({ url: "https://a.example" }, { addressContext }))).toEqual([]);
    const { addressContext: _heard, ...unknown } = callOf({ url: "https://a.example" });
    expect(strangeAddresses(unknown)).toEqual([]);
  });

  it("are looked for where the tool says that it has some, and nowhere else", () => {
    const given = { to: "a.example", text: "https://b.example", deep: [{ to: ["c.example"] }] };
    expect(strangeAddresses(callOf(given, { addresses: ["to"] })).toSorted()).toEqual([
      "a.example",
      "c.example",
    ]);
    expect(strangeAddresses(callOf(given, { addresses: [] }))).toEqual([]);
    expect(strangeAddresses(callOf(given))).toEqual(["https://b.example"]);
    expect(
      strangeAddresses(callOf({ to: "not an address at all" }, { addresses: ["to"] })),
    ).toHaveLength(1);
  });

  it("leave out hosts of `egress`, with their own port only and never with a password", () => {
    const left = (url: string, ...egress: string[]) =>
      strangeAddresses(callOf({ url }, { egress })).length;
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
    expect(performance.now() - startedMs).toBeLessThan(20_000);
  });
});

function patternsIn(input: Record<string, unknown>): string[] {
  return riskOf(input).map(({ pattern }) => pattern);
}

describe("riskOf", () => {
  it.each([
    "rm -rf /",
    "rm -fr /",
    "RM -RF /",
    "rm -r -f /",
    "rm -f -r /",
    "rm -Rf /",
    "rm -v -rf /",
    "rm -vrf /",
    "rm --recursive --force /",
    "rm --force --recursive /",
    "rm --rec --fo /",
    "rm -r --force /",
    "rm / -rf",
    "rm -r / -f",
    "rm\t-rf\t/",
    "rm  -rf /",
    "/bin/rm -rf /",
    "\\rm -rf /",
    "'rm' \"-rf\" /",
    "rm${IFS}-rf /",
    "rm \\\n -rf /",
    "ls && sudo rm -rf /",
    "echo $(rm -rf /)",
    "cd /\nrm -rf .",
  ])("EE-38: finds rm -rf in %j", (command) => {
    expect(patternsIn({ command })).toEqual(["rm -rf"]);
  });

  it.each(["rm -r dir", "rm -f file", "rm file; ls -rf", "farm -rf", "rm", "perform -rf", "-rf"])(
    "finds no rm -rf in %j",
    (command) => {
      expect(patternsIn({ command })).toEqual([]);
    },
  );

  it.each(["drop table users", "DROP TABLE users", "Drop\n  Table x", "drop/* */table x"])(
    "EE-38: finds drop table in %j",
    (sql) => {
      expect(patternsIn({ sql })).toEqual(["drop table"]);
    },
  );

  it("finds a pattern in any string at any depth, in lists of words and in fields that are switched on", () => {
    expect(patternsIn({ a: [{ b: { c: ["x", "rm -rf /"] } }] })).toEqual(["rm -rf"]);
    expect(patternsIn({ argv: ["rm", "-r", "-f", "/"] })).toEqual(["rm -rf"]);
    expect(patternsIn({ overwrite: true })).toEqual(["overwrite"]);
    expect(patternsIn({ mode: "OVERWRITE" })).toEqual(["overwrite"]);
    expect(patternsIn({ overwrite: false, other: null, drop: { table: 1 } })).toEqual([]);
  });

  it("EE-38: gives one finding per pattern, however often it occurs, with its reason in English", () => {
    const findings = riskOf({
      a: "rm -rf a; rm -rf b",
      b: "drop table x",
      c: "DROP TABLE y",
      d: "overwrite",
    });
    expect(findings).toEqual([
      { pattern: "rm -rf", reason: expect.stringMatching(/^[ -~]+$/) },
      { pattern: "drop table", reason: expect.stringMatching(/^[ -~]+$/) },
      { pattern: "overwrite", reason: expect.stringMatching(/^[ -~]+$/) },
    ]);
  });

  it("survives huge and hostile inputs, in time that grows with their size at most", () => {
    let deep: unknown = "rm -rf /";
    for (let depth = 0; depth < 100_000; depth++) deep = [deep];
    const started = process.threadCpuUsage();
    expect(patternsIn({ deep })).toEqual(["rm -rf"]);
    for (const unit of ["rm ", "rm -r ", "drop ", "drop/*", "-rf", "\\\n", "$IFS", "( "]) {
      expect(patternsIn({ text: unit.repeat(1_000_000) })).toEqual([]);
    }
    expect(process.threadCpuUsage(started).user / 1_000).toBeLessThan(5_000);
  });
});

describe("maskedArguments", () => {
  it("AL-63: hides the values of declared fields at any depth, whatever their type and letter case", () => {
    const input = {
      PIN: 1234,
      a: [{ pin: ["12", "34"] }, { b: { Pin: { code: "1234" } } }],
      other: "1",
    };
    expect(maskedArguments(input, ["pin"])).toEqual({
      PIN: "***",
      a: [{ pin: "***" }, { b: { Pin: "***" } }],
      other: "1",
    });
  });

  it.each([
    "password",
    "Password",
    "user_password",
    "dbPassword",
    "passwd",
    "token",
    "accessToken",
    "ACCESS_TOKEN",
    "secret",
    "client-secret",
    "api_key",
    "apiKey",
    "x-api-key",
    "apikey",
    "Authorization",
    "privateKey",
    "credentials",
    "cookie",
  ])("AL-63: hides what a field named %j holds, also inside", (name) => {
    const shown = JSON.stringify(
      maskedArguments({ [name]: "hunter2", inner: { [name]: { a: ["hunter2"] } } }, []),
    );
    expect(shown).not.toContain("hunter2");
    expect(shown).toContain(name);
  });

  it("shows fields that are only named similarly", () => {
    const input = {
      tokens: 5,
      max_tokens: 100,
      secretary: "Li",
      keyboard: "us",
      passenger: "Wang",
      key: "a",
    };
    expect(maskedArguments(input, [])).toEqual(input);
  });

  it.each([
    ["curl -H 'Authorization: Bearer abcdef123456' https://x", "abcdef123456"],
    ["git clone https://me:hunter22@host/repo", "hunter22"],
    ["login --password hunter22 --user me", "hunter22"],
    ["login --password=hunter22", "hunter22"],
    ["API_KEY=hunter22 ./run", "hunter22"],
    ['{"token": "hunter22"}', "hunter22"],
    ["use sk-abcdefghijklmnop", "abcdefghijklmnop"],
  ])("hides the credential inside %j and keeps the rest", (command, secret) => {
    const { command: shown } = maskedArguments({ command }, []);
    expect(shown).not.toContain(secret);
    expect(String(shown).slice(0, 4)).toBe(command.slice(0, 4));
  });

  it("keeps values, non-ASCII text and order of everything else, and changes nothing itself", () => {
    const input = { 城市: "上海", list: [1, true, null, "🎉"], empty: {}, none: "" };
    const before = structuredClone(input);
    expect(Object.entries(maskedArguments(input, []))).toEqual(Object.entries(input));
    expect(input).toEqual(before);
  });

  it("is bounded in size and depth, whatever the input", () => {
    let deep: unknown = "x";
    for (let depth = 0; depth < 10_000; depth++) deep = { deep };
    const wide = Object.fromEntries(
      Array.from({ length: 50_000 }, (_, index) => [`k${index}`, index]),
    );
    const started = process.threadCpuUsage();
    for (const input of [
      { deep },
      wide,
      { text: "a:".repeat(1_000_000) },
      { list: Array(1_000_000).fill("://") },
    ]) {
      expect(JSON.stringify(maskedArguments(input, [])).length).toBeLessThan(200_000);
    }
    expect(process.threadCpuUsage(started).user / 1_000).toBeLessThan(5_000);
    expect(maskedArguments({ text: "x".repeat(5_000) }, [])["text"]).toBe(`${"x".repeat(4_000)}…`);
  });
});
