import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { describe, expect, it } from "vitest";
import { runApp } from "../system/app-process.ts";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "larkline-loaded-"));
const hook = join(folder, "hook.mjs");
writeFileSync(
  hook,
  `import { registerHooks } from "node:module";
   import { appendFileSync } from "node:fs";
   registerHooks({ load(url, context, next) { appendFileSync(process.env.LOADED_FILE, url + "\\n"); return next(url, context); } });`,
);

/** What a program loads: packages by name. That of a process ends because its configuration is refused. */
async function packagesOf(program: string, exitCode = 1): Promise<Set<string>> {
  const file = join(folder, `${program.replaceAll("/", "-")}.log`);
  const env = {
    REDIS_URL: "none",
    NODE_OPTIONS: `--import ${pathToFileURL(hook).href}`,
    LOADED_FILE: file,
  };
  const { code, output } = await runApp({ file: program }, env);
  expect(code, output).toBe(exitCode);
  const urls = readFileSync(file, "utf8").split("\n");
  return new Set(
    urls.flatMap((url) => /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(url)?.[1] ?? []),
  );
}

/** Each is needed by some deployments, and costs the start of a process up to half a second and 30 MB. */
const sometimes = [
  "@anthropic-ai/sdk",
  "openai",
  "@larksuiteoapi/node-sdk",
  "@modelcontextprotocol/client",
  "pg",
  "jose",
  "typebox",
];

const hasPages = ["ingress", "console"];

describe("what only some deployments use", () => {
  it.each(["ingress", "agent-worker", "tool-runner", "console"])(
    "is not loaded by every %s",
    async (app) => {
      const loaded = await packagesOf(`apps/${app}/src/main.ts`);
      expect(loaded).toContain("ioredis");
      expect(sometimes.filter((name) => loaded.has(name))).toEqual([]);
      expect(loaded.has("fastify"), "more than three fixed paths").toBe(hasPages.includes(app));
    },
  );
});

it("the store loads BullMQ for its queues only, and PostgreSQL's driver when a database is used", async () => {
  const manifest = JSON.parse(
    readFileSync(join(repository, "packages/store/package.json"), "utf8"),
  ) as {
    exports: Record<string, string>;
  }; // our own file
  const loadedBy = async (name: string, doors: readonly string[]): Promise<string[]> => {
    const program = join(folder, name);
    const paths = doors.map((door) =>
      join(repository, "packages/store", manifest.exports[door] ?? ""),
    );
    writeFileSync(
      program,
      paths.map((path) => `import ${JSON.stringify(pathToFileURL(path).href)};`).join("\n"),
    );
    const loaded = await packagesOf(program, 0);
    return ["bullmq", "ioredis", "pg"].filter((each) => loaded.has(each));
  };
  const others = Object.keys(manifest.exports).filter(
    (door) => !["./queues", "./testing"].includes(door),
  );
  expect(await loadedBy("others.mjs", others)).toEqual(["ioredis"]);
  expect(await loadedBy("queues.mjs", ["./queues"])).toContain("bullmq");
});
