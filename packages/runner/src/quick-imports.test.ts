import { execFile } from "node:child_process";
import { mkdtempSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";

const directory = mkdtempSync(join(tmpdir(), "larkline-imports-"));
const quickImports = fileURLToPath(new URL("quick-imports.ts", import.meta.url));

const modules = {
  "plain.ts": `import { Type, type Static } from "typebox";
const input = Type.Object({ n: Type.Optional(Type.Integer({ minimum: 1 })), kind: Type.Enum(["a", "b"]) });
export type Input = Static<typeof input>;
export { input, Type };`,
  "renamed.ts": `import{Type as T}from'typebox'; export const input = T.String();`,
  "default.ts": `import Type from "typebox"; export const input = Type.String();`,
  "more.ts": `import { Type, IsObject } from "typebox"; export const input = Type.Object({}); export { IsObject };`,
  "again.ts": `import { Type } from "typebox"; export { IsString } from "typebox"; export const input = Type.String();`,
  "whole.ts": `import * as Type from "typebox"; export const input = Type.String();`,
};

/** What a process that makes imports quick prints for `script`, in which `loaded` counts the files of TypeBox. */
async function told(script: string): Promise<unknown> {
  const source = `
    import { registerHooks } from "node:module";
    import { quickenImports } from ${JSON.stringify(quickImports)};
    let loaded = 0;
    registerHooks({ load(url, context, next) { if (url.startsWith("file:") && url.includes("/typebox/")) loaded += 1; return next(url, context); } });
    quickenImports();
    const load = async (name) => await import(${JSON.stringify(`${directory}/`)} + name);
    ${script}`;
  const file = join(directory, `script-${scripts++}.mjs`);
  writeFileSync(file, source);
  const { stdout } = await promisify(execFile)(process.execPath, [file]);
  return JSON.parse(stdout);
}

let scripts = 0;

beforeAll(() => {
  for (const [name, source] of Object.entries(modules)) {
    writeFileSync(join(directory, name), source);
  }
  const packages = fileURLToPath(new URL("../node_modules", import.meta.url));
  symlinkSync(packages, join(directory, "node_modules"));
});

describe("a module that imports nothing but Type of TypeBox", () => {
  it.each(["plain.ts", "renamed.ts", "default.ts"])("loads no file of it (%s)", async (name) => {
    expect(await told(`await load("${name}"); console.log(loaded);`)).toBe(0);
  });

  it("has the schemas of TypeBox, which are made when they are first read", async () => {
    const { Type, IsOptional } = await import("typebox");
    const made = Type.Object({
      n: Type.Optional(Type.Integer({ minimum: 1 })),
      kind: Type.Enum(["a", "b"]),
    });
    const script = `
      const { input, Type } = await load("plain.ts");
      const { Check } = await import(import.meta.resolve("typebox/value", "file://${directory}/x.js"));
      const { IsOptional } = await import(import.meta.resolve("typebox/type", "file://${directory}/x.js"));
      const before = loaded > 0;
      console.log(JSON.stringify({ schema: input, keys: Object.keys(input), kind: input["~kind"], copy: { ...input }.type,
        optional: IsOptional(input.properties.n), has: "required" in input, plain: Object.getPrototypeOf(input) === Object.prototype,
        checks: [Check(input, { kind: "a" }), Check(input, { kind: "c" })], guard: Type.IsObject(input) }));`;
    expect(await told(script)).toEqual({
      schema: JSON.parse(JSON.stringify(made)) as unknown,
      keys: Object.keys(made),
      kind: "Object",
      copy: "object",
      optional: IsOptional(made.properties.n),
      has: true,
      plain: true,
      checks: [true, false],
      guard: true,
    });
  });
});

describe("a module that imports more of TypeBox", () => {
  it.each(["more.ts", "again.ts", "whole.ts"])("gets all of it at once (%s)", async (name) => {
    expect(await told(`await load("${name}"); console.log(loaded > 100);`)).toBe(true);
  });
});
