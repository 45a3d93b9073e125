import { Type } from "typebox";
import { describe, expect, expectTypeOf, it } from "vitest";
import {
  announcementOf,
  createToolRegistry,
  defineProgramTool,
  defineTool,
  isTool,
  type Isolation,
  type ToolDefinition,
} from "./index.ts";

const context = {
  callId: "c1",
  turnId: "t1",
  signal: new AbortController().signal,
  actor: { app: "a", userId: "u", chatId: "c" },
  authority: { by: "policy" as const },
  progress: () => {},
  saveFile: () => Promise.reject(new Error("no files here")),
  log: () => {},
};

const valid: ToolDefinition<Record<string, unknown>> = {
  name: "ok",
  description: "d",
  input: { type: "object" },
  effect: "pure",
  run: () => null,
};

describe("defineTool", () => {
  it("infers the input of a TypeBox schema", () => {
    defineTool({
      name: "add",
      description: "adds",
      input: Type.Object({ a: Type.Number(), tags: Type.Optional(Type.Array(Type.String())) }),
      effect: "pure",
      run(input) {
        expectTypeOf(input.a).toEqualTypeOf<number>();
        expectTypeOf(input.tags).toEqualTypeOf<string[] | undefined>();
        return input.a;
      },
    });
  });

  it("gives an object of unknown values for a JSON Schema without literal types", async () => {
    const schema: Record<string, unknown> = {
      type: "object",
      properties: { a: { type: "number" } },
    };
    const tool = defineTool({
      name: "echo",
      description: "echoes",
      input: schema,
      effect: "pure",
      run(input) {
        expectTypeOf(input).toEqualTypeOf<Record<string, unknown>>();
        return input["a"];
      },
    });
    expect(await tool.run({ a: 7 }, context)).toBe(7);
  });

  it("announces name, description, schema, effect, approval and timeout, and nothing of the handler", () => {
    const tool = defineTool({
      name: "add",
      description: "adds",
      input: Type.Object({ a: Type.Number() }),
      effect: "idempotent",
      requiresApproval: true,
      timeoutMs: 5_000,
      run: () => null,
    });
    expect(JSON.parse(JSON.stringify(announcementOf(tool)))).toEqual({
      spec: {
        name: "add",
        description: "adds",
        inputSchema: { type: "object", required: ["a"], properties: { a: { type: "number" } } },
      },
      effect: "idempotent",
      requiresApproval: true,
      timeoutMs: 5_000,
      risk: "medium",
    });
    expect(isTool(tool)).toBe(true);
    expect(isTool({ name: "add" })).toBe(false);
  });

  it("announces what people read of it, and refuses a summary with a secret or an unknown argument", () => {
    const input = {
      type: "object",
      properties: { text: { type: "string" }, pin: { type: "string" } },
    };
    const words = { title: { zh: "记笔记", en: "Add a note" }, summary: "Add a note: {text}" };
    const told = announcementOf(defineTool({ ...valid, input, ...words }));
    expect(told).toMatchObject(words);
    const refused = (summary: string) => () =>
      defineTool({ ...valid, input, secrets: ["pin"], summary });
    expect(refused("Pay with {pin}")).toThrow('tool "ok": its summary names the secret "pin"');
    expect(refused("Pay {sum}")).toThrow(
      'tool "ok": the "sum" of its summary is no property of its input',
    );
    expect(refused("")).toThrow(/tool "ok": .*summary/);
  });

  it("announces risk, secrets, subject and limits to workers", () => {
    const tool = defineTool({
      ...valid,
      input: {
        type: "object",
        properties: { sql: { type: "string" }, password: { type: "string" } },
      },
      risk: "high",
      secrets: ["password"],
      subject: "sql",
      limits: { concurrency: 2, rate: { calls: 10, perMs: 1_000 } },
    });
    expect(announcementOf(tool)).toMatchObject({
      risk: "high",
      secrets: ["password"],
      subject: "sql",
      limits: { concurrency: 2, rate: { calls: 10, perMs: 1_000 } },
    });
  });

  it("announces as whom it acts, and what the person must have granted", () => {
    const scopes = ["calendar:calendar.event:create"];
    const identityOf = (facts: object) =>
      announcementOf(defineTool({ ...valid, ...facts })).identity;
    expect(identityOf({ as: "person", scopes })).toEqual({ as: "person", scopes });
    expect(identityOf({ as: "bot" })).toEqual({ as: "bot", scopes: [] });
    expect(identityOf({})).toBeUndefined();
  });

  it("isolates a tool that says nothing in a process", () => {
    expect(defineTool(valid).isolation).toEqual({
      level: "process",
      env: [],
      network: "none",
      readable: [],
    });
  });

  it("takes for each level what the level can give", () => {
    const levels: Isolation[] = [
      "inline",
      "process",
      { level: "process", memoryMb: 512, env: ["TZ"] },
      "sandbox",
      {
        level: "sandbox",
        memoryMb: 64,
        network: { allow: ["api.example.com"] },
        limits: { processes: 4 },
      },
      { level: "sandbox", readable: ["/usr/share/dict"] },
    ];
    for (const isolation of levels) {
      const asked = typeof isolation === "string" ? { level: isolation } : isolation;
      expect(defineTool({ ...valid, isolation }).isolation).toMatchObject(asked);
    }
  });

  const wrong: [string, Record<string, unknown>, RegExp][] = [
    ["a name with a space", { name: "my tool" }, /"my tool".*name/],
    ["a name of 65 characters", { name: "x".repeat(65) }, /name/],
    ["no name", { name: undefined }, /tool without a name.*name/],
    ["a schema that is not of type object", { input: { type: "array" } }, /"ok".*type "object"/],
    ["no schema", { input: null }, /"ok".*JSON Schema object/],
    [
      "a schema that does not compile",
      { input: { type: "object", properties: { a: { type: "nope" } } } },
      /"ok".*compile/,
    ],
    ["an unknown effect", { effect: "maybe" }, /"ok".*effect/],
    [
      "an isolation level that does not exist",
      { isolation: "worker" },
      /"ok".*"worker" does not exist/,
    ],
    [
      "an isolation without level",
      { isolation: { memoryMb: 64 } },
      /"ok".*level undefined does not exist/,
    ],
    [
      "a setting that a level does not take",
      { isolation: { level: "inline", env: ["A"] } },
      /"ok".*inline.*'env'/,
    ],
    [
      "network in a process",
      { isolation: { level: "process", network: "none" } },
      /"ok".*process.*'network'/,
    ],
    [
      "a limit that does not exist",
      { isolation: { level: "sandbox", limits: { wallMs: 5 } } },
      /"ok".*'wallMs'/,
    ],
    [
      "the address of Redis as a variable",
      { isolation: { level: "process", env: ["REDIS_URL"] } },
      /REDIS_URL is never/,
    ],
    ["files out of a sandbox", { isolation: "sandbox", savesFiles: true }, /"ok".*saveFile/],
    ["an unknown risk", { risk: "extreme" }, /"ok".*risk/],
    ["a subject that is no argument", { subject: "command" }, /"ok".*"command" is no property/],
    ["an identity that does not exist", { as: "owner" }, /"ok".*identity/],
    ["a look of what is not once", { looks: true }, /"ok".*looks is for tools that are once/],
    ["a repeat of what is not once", { repeatMs: 1_000 }, /"ok".*repeatMs is for tools that are/],
    [
      "a repeat without an end",
      { effect: "once", repeatMs: 1e9 },
      /"ok".*repeatMs must be a whole/,
    ],
    ["scopes of no one", { scopes: ["a:b"] }, /"ok".*scopes are of no use without as/],
    ["a scope with a blank", { as: "person", scopes: ["a b"] }, /"ok".*scopes/],
    [
      "21 scopes",
      { as: "person", scopes: Array.from({ length: 21 }, (_, i) => `s:${i}`) },
      /"ok".*scopes/,
    ],
    [
      "a token in a sandbox",
      { as: "person", isolation: "sandbox" },
      /"ok".*no token goes into a sandbox/,
    ],
    ["limits without a limit", { limits: {} }, /"ok".*limits names no limit/],
    ["a concurrency of 0", { limits: { concurrency: 0 } }, /"ok".*concurrency/],
    ["timeout 0", { timeoutMs: 0 }, /"ok".*timeoutMs/],
    ["a fractional timeout", { timeoutMs: 1.5 }, /"ok".*timeoutMs/],
    ["a timeout over an hour", { timeoutMs: 3_600_001 }, /"ok".*timeoutMs/],
    ["no run function", { run: "x" }, /"ok".*run/],
  ];
  it.each(wrong)("refuses %s, naming the tool", (_what, change, message) => {
    const definition: object = { ...valid, ...change };
    expect(() => defineTool(definition as typeof valid)).toThrow(message);
  });
});

describe("defineProgramTool", () => {
  const program = {
    ...valid,
    run: undefined,
    program: () => ({ runtime: "node" as const, code: "" }),
  };

  it("makes a tool for the sandbox, and completes its description by how images are shown", () => {
    const tool = defineProgramTool(program);
    expect(tool).toMatchObject({ kind: "program", isolation: { level: "sandbox" } });
    expect(tool.description).toContain("![name](blob:...)");
    expect(isTool(tool)).toBe(true);
  });

  it.each(["inline", "process"] as const)(
    "refuses isolation %s: code of a model gets no less than a sandbox",
    (level) => {
      expect(() => defineProgramTool({ ...program, isolation: level })).toThrow(
        /"ok".*"sandbox" only/,
      );
      expect(() => defineProgramTool({ ...program, isolation: { level } })).toThrow(
        /"ok".*"sandbox" only/,
      );
    },
  );

  it("takes no identity: no token goes into a sandbox", () => {
    expect(() => defineProgramTool({ ...program, as: "person" })).toThrow(/"ok".*no token/);
  });

  it("refuses a definition without a program, naming the tool", () => {
    const definition: object = { ...program, program: undefined };
    expect(() => defineProgramTool(definition as typeof program)).toThrow(
      /"ok".*program must be a function/,
    );
  });

  it("is not run by a registry, which has no sandbox", async () => {
    const registry = createToolRegistry();
    registry.add(defineProgramTool(program));
    await expect(registry.dispatch("ok", {}, context)).rejects.toThrow(/"ok" runs programs/);
  });
});
