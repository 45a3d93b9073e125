import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { describe, expect, it } from "vitest";
import { loadTools } from "./tool-modules.ts";

const here = fileURLToPath(new URL(".", import.meta.url));

/** What a process of its own says of these modules: vitest reads modules in another way than Node. */
function errorsInNode(specifiers: string[], directory: string): string {
  const program = `import { loadTools } from ${JSON.stringify(join(here, "tool-modules.ts"))};
    const loaded = await loadTools(${JSON.stringify(specifiers)}, { directory: ${JSON.stringify(directory)} });
    process.stdout.write(loaded.ok ? "" : loaded.error);`;
  return execFileSync(process.execPath, ["--input-type=module", "-e", program], {
    encoding: "utf8",
    stdio: "pipe",
  });
}

describe("loadTools", () => {
  it("loads a package and a path relative to the working directory, in order", async () => {
    const directory = mkdtempSync(join(tmpdir(), "larkline-tools-"));
    const installed = join(directory, "node_modules", "greetings");
    mkdirSync(installed, { recursive: true });
    writeFileSync(
      join(installed, "package.json"),
      '{"name":"greetings","type":"module","exports":"./index.js"}',
    );
    writeFileSync(
      join(installed, "index.js"),
      `export { default } from ${JSON.stringify(join(here, "greet-tools.fixture.ts"))};`,
    );
    const loaded = await loadTools(
      ["greetings", relative(directory, join(here, "probe-tools.fixture.ts"))],
      {
        directory,
      },
    );
    expect(
      loaded.ok ? loaded.value.registry.specs().map((spec) => spec.name) : loaded.error,
    ).toEqual(["greet", "hold_once", "hold_pure", "slow", "block", "alone", "echo"]);
  });

  it("loads the tools of a file that makes a runner of itself, and starts none", async () => {
    const directory = mkdtempSync(join(tmpdir(), "larkline-tools-"));
    const [kit, greet] = ["create-runner.ts", "greet-tools.fixture.ts"].map((path) =>
      join(here, path),
    );
    const file = join(directory, "runner.mjs");
    writeFileSync(
      file,
      `import { createRunner } from ${JSON.stringify(kit)}; import greet from ${JSON.stringify(greet)};
       await createRunner({ name: "r", tools: [greet], env: {} });`,
    );
    const loaded = await loadTools(["runner.mjs"], { directory });
    expect(loaded.ok ? [...loaded.value.modules] : loaded.error).toEqual([
      ["greet", pathToFileURL(file).href],
    ]);
  });

  it("shows the line of a syntax error, and the calls that led to a throw", async () => {
    const directory = mkdtempSync(join(tmpdir(), "larkline-tools-"));
    writeFileSync(
      join(directory, "typed.ts"),
      "const a: number = 1;\nexport default [a,, b: 2];\n",
    );
    writeFileSync(join(directory, "plain.mjs"), "const a = 1;\nexport default = a;\n");
    writeFileSync(
      join(directory, "throws.mjs"),
      "function open() {\n  throw new Error('no table');\n}\nopen();\n",
    );
    const problems = errorsInNode(["typed.ts", "plain.mjs", "throws.mjs"], directory)
      .split(/^plugin_load_error/m)
      .slice(1);
    expect(problems[0]).toContain(
      `\n    ${join(directory, "typed.ts")}:2\n    export default [a,, b: 2];\n`,
    );
    expect(problems[1]).toContain(
      `\n    ${join(directory, "plain.mjs")}:2\n    export default = a;\n`,
    );
    expect(problems[2]).toMatch(
      /no table\.\n    at open \(.*throws\.mjs:2:9\)\n    at .*throws\.mjs:4:1/,
    );
  });

  it("reports every module that is missing, broken, exports something else or repeats a name", async () => {
    const directory = mkdtempSync(join(tmpdir(), "larkline-tools-"));
    writeFileSync(join(directory, "broken.mjs"), 'throw new Error("boom at import");');
    writeFileSync(join(directory, "other.mjs"), "export default { name: 'x' };");
    writeFileSync(join(directory, "none.mjs"), "export const tool = 1;");
    writeFileSync(join(directory, "empty.mjs"), "export default [];");
    const probes = join(here, "probe-tools.fixture.ts");
    const loaded = await loadTools(
      ["./nowhere.mjs", "./broken.mjs", "./other.mjs", "none.mjs", "empty.mjs", probes, probes],
      { directory },
    );
    const problems = loaded.ok
      ? []
      : loaded.error.split("\n").filter((line) => !line.startsWith(" "));
    expect(problems.map((problem) => problem.slice(0, 46))).toEqual(
      Array(6).fill('plugin_load_error: RUNNER_TOOLS: cannot load "'),
    );
    expect(problems[1]).toContain("boom at import");
    for (const problem of problems.slice(2, 5)) expect(problem).toContain("default export");
    expect(problems[5]).toContain("registered twice");
  });
});
