import { execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { loadConfigFile } from "./config-file.ts";
import { resolveConfig } from "./larkline-config.ts";

describe("resolveConfig", () => {
  it("turns nothing into a useful default agent", () => {
    const resolved = resolveConfig({});
    expect(resolved).toMatchObject({
      ok: true,
      value: {
        agents: { default: { maxIterations: 25, tools: null, model: null, groups: "mention" } },
        models: [],
        limits: { messageAgeMs: 600_000 },
      },
    });
  });

  it("takes forms of webhook timestamps that give an instant, for the whole text", () => {
    const formsOf = (...timestampForms: string[]) => resolveConfig({ webhook: { timestampForms } });
    const taken = formsOf("at (?<seconds>\\d{10})|(?<millis>\\d{13})");
    expect(
      taken.ok
        ? taken.value.webhook.timestampForms.map((form) => form.test("at 1700000000 "))
        : taken,
    ).toEqual([false]);
    expect(formsOf("(?<micros>\\d+")).toMatchObject({
      ok: false,
      error: expect.stringContaining("not a regular"),
    });
    expect(formsOf(".*", "(?<year>\\d+)")).toMatchObject({
      ok: false,
      error: expect.stringMatching(/'\.\*' has neither .*; .*'\(\?<year>\\d\+\)' has neither/),
    });
  });

  it("AT-21: refuses a form of answers that is none, and keeps one that is", () => {
    const outputOf = (output: object) =>
      resolveConfig({ agents: { judge: { output: { name: "verdict", ...output } } } });
    const schema = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };
    const taken = outputOf({ schema, format: "{ok}" });
    expect(taken.ok ? taken.value.agents["judge"]?.output : taken).toEqual({
      name: "verdict",
      schema,
      format: "{ok}",
    });
    const refusals: [object, string][] = [
      [{ schema: { type: "string" } }, "agents.judge.output.schema is not of type object"],
      [
        { schema: { ...schema, required: "ok" } },
        "agents.judge.output.schema is invalid: required must be array",
      ],
      [
        { schema: { ...schema, title: "x".repeat(33_000) } },
        "agents.judge.output.schema is too large",
      ],
      [{ schema, format: "{no}" }, "agents.judge.output.format names 'no'"],
    ];
    for (const [output, error] of refusals) {
      expect(outputOf(output)).toMatchObject({
        ok: false,
        error: expect.stringContaining(error) as string,
      });
    }
  });

  it("keeps what is given and fills in the rest", () => {
    const resolved = resolveConfig({
      agents: {
        default: { instructions: "Be brief." },
        ops: { tools: ["clock"], maxIterations: 3 },
      },
      models: [
        {
          id: "m",
          provider: "openai",
          contextWindow: 1_000,
          maxOutputTokens: 100,
          inputPricePer1M: 2,
        },
      ],
      limits: { messageAgeMs: 1 },
    });
    expect(resolved).toMatchObject({
      ok: true,
      value: {
        agents: {
          default: { instructions: "Be brief.", maxIterations: 25 },
          ops: { tools: ["clock"], maxIterations: 3 },
        },
        models: [
          {
            id: "m",
            displayName: "m",
            inputPricePer1M: 2,
            outputPricePer1M: 0,
            supportsVision: false,
          },
        ],
        limits: { messageAgeMs: 1, messageChars: 50_000 },
      },
    });
  });

  it("lists every problem, typing errors in keys included", () => {
    const resolved = resolveConfig({
      agents: { default: { maxIterations: 0, tool: [] } },
      limits: { messageAgeMs: "1h" },
      modells: [],
    });
    const error = resolved.ok ? "" : resolved.error;
    expect(error).toContain("'modells'");
    expect(error).toContain("agents.default.maxIterations must be >= 1");
    expect(error).toContain("agents.default must NOT have additional properties 'tool'");
    expect(error).toContain("limits.messageAgeMs must be integer");
  });
});

describe("loadConfigFile", () => {
  let directory = "";
  const file = async (name: string, text: string) => {
    const path = join(directory, name);
    await writeFile(path, text);
    return path;
  };

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "larkline-config-"));
  });
  afterAll(() => rm(directory, { recursive: true }));

  it("loads a TypeScript file", async () => {
    const path = await file(
      "good.ts",
      'const model: string = "anthropic/m"; export default { agents: { default: { model } } };',
    );
    expect(await loadConfigFile(path)).toMatchObject({
      ok: true,
      value: { agents: { default: { model: "anthropic/m" } } },
    });
  });

  /** What a process of its own says of a file: vitest reads modules in another way than Node. */
  const errorInNode = (path: string): string => {
    const program = `import { loadConfigFile } from ${JSON.stringify(new URL("config-file.ts", import.meta.url).href)};
      const loaded = await loadConfigFile(${JSON.stringify(path)});
      process.stdout.write(loaded.ok ? "" : loaded.error);`;
    return execFileSync(process.execPath, ["--input-type=module", "-e", program], {
      encoding: "utf8",
      stdio: "pipe",
    });
  };

  it("names the line of a syntax error, and the calls that led to a throw", async () => {
    const syntax = await file("syntax.ts", "export default {\n  agents: {}\n  models: [],\n};\n");
    expect(errorInNode(syntax)).toContain(`\n    ${syntax}:3\n      models: [],\n`);
    await file("broken.ts", 'export const value = JSON.parse("{");\n');
    const imports = await file("imports.ts", 'import "./broken.ts";\nexport default {};\n');
    expect(errorInNode(imports)).toMatch(/\n {4}at .*broken\.ts:1:\d+/);
  });

  it("finds modules of observers from its own folder, and packages where they are installed", async () => {
    const path = await file(
      "watched.ts",
      'export default { observers: ["./alerts.ts", "/etc/watch.js", "none-such"] };',
    );
    const loaded = await loadConfigFile(path);
    expect(loaded.ok ? loaded.value.observers : loaded.error).toEqual([
      pathToFileURL(join(directory, "alerts.ts")).href,
      "file:///etc/watch.js",
      "none-such",
    ]);
  });

  it("reports a file that is named and absent", async () => {
    const path = join(directory, "absent.ts");
    expect(await loadConfigFile(path)).toEqual({
      ok: false,
      error: `LARKLINE_CONFIG: ${path} does not exist.`,
    });
  });

  it.each([
    ["throws.ts", 'throw new Error("broken on purpose");', "broken on purpose"],
    ["no-default.ts", "export const agents = {};", "no default export"],
    ["wrong.ts", "export default { agents: 1 };", "agents must be object"],
  ])("names the file and the reason when %s cannot be used", async (name, text, reason) => {
    const path = await file(name, text);
    const loaded = await loadConfigFile(path);
    expect(loaded.ok ? "" : loaded.error).toContain(path);
    expect(loaded.ok ? "" : loaded.error).toContain(reason);
  });
});
