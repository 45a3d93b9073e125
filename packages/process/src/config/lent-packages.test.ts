import { execFile } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const run = promisify(execFile);
const index = new URL("index.ts", import.meta.url).href;

// In a process of its own: the test runner resolves modules in its own way.
async function runNode(script: string): Promise<string> {
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", script]);
  return stdout.trim();
}

it.each(["@larkline/tool-kit", "@larkline/process/config"])(
  "a configuration file anywhere may import %s",
  async (name) => {
    const file = join(mkdtempSync(join(tmpdir(), "larkline-config-")), "larkline.config.ts");
    writeFileSync(
      file,
      `import { defineConfig } from "${name}";\nexport default defineConfig({ agents: { default: { maxIterations: 3 } } });\n`,
    );
    const loaded = await runNode(
      `import { loadConfigFile } from ${JSON.stringify(index)};
     const loaded = await loadConfigFile(${JSON.stringify(file)});
     console.log(loaded.ok ? loaded.value.agents.default.maxIterations : loaded.error);`,
    );
    expect(loaded).toBe("3");
  },
);

it("packages that are not lent stay unknown", async () => {
  const outcome = await runNode(
    `import { lendPackages } from ${JSON.stringify(index)};
     lendPackages(["@larkline/process/config"], ${JSON.stringify(index)});
     await import("@larkline/nothing").catch((error) => console.log(error.code));`,
  );
  expect(outcome).toBe("ERR_MODULE_NOT_FOUND");
});
