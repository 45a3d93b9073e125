import { execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { root } from "../docs/document.ts";

interface SetUp {
  installDependencies(
    life: { signal: AbortSignal; say(line: string): void },
    wanted: string,
  ): Promise<void>;
  isOwnNodeGood(process?: { version: string; config: { variables: object } }): boolean;
}

/** A checkout as far as an installation reads it. */
let folder: string;
let setUp: SetUp;

beforeAll(async () => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "larkline-installation-")));
  const files = execFileSync("git", ["ls-files", "*package.json", "pnpm-*.yaml", "infra/dev"], {
    cwd: root,
  });
  for (const file of files.toString().trim().split("\n")) {
    cpSync(join(root, file), join(folder, file));
  }
  setUp = (await import(
    pathToFileURL(join(folder, "infra/dev/launcher/set-up.mjs")).href
  )) as SetUp; // plain JavaScript
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** As `du -sm` counts: each file once, in blocks. */
function megabytesOf(directory: string): number {
  const seen = new Set<number>();
  let blocks = 0;
  for (const name of ["", ...readdirSync(directory, { recursive: true, encoding: "utf8" })]) {
    const { ino, blocks: own } = lstatSync(join(directory, name));
    if (!seen.has(ino)) blocks += own;
    seen.add(ino);
  }
  return (blocks * 512) / 2 ** 20;
}

function packagesOf(directory: string): string[] {
  return readdirSync(join(directory, "node_modules/.pnpm"));
}

describe("what a start installs", () => {
  const said: string[] = [];
  const install = async (part: string): Promise<void> => {
    const life = { signal: new AbortController().signal, say: (line: string) => said.push(line) };
    await setUp.installDependencies(life, part);
  };
  const pinned = () => existsSync(join(folder, "node_modules/node/bin/node"));

  it("is under 250 MB on a machine with the pinned Node", { timeout: 300_000 }, async () => {
    await install("playground");
    expect(megabytesOf(join(folder, "node_modules"))).toBeLessThan(250);
    expect(pinned()).toBe(false);
    expect(
      packagesOf(folder).filter((name) =>
        /^(openai|vitest|typescript|oxlint|playwright)/.test(name),
      ),
    ).toEqual([]);
  });

  it("is installed once", async () => {
    await install("playground");
    expect(said).toHaveLength(1);
  });

  it(
    "grows by OpenAI's SDK where a model of its interface is used, and keeps what is there",
    {
      timeout: 300_000,
    },
    async () => {
      await install("start");
      expect(packagesOf(folder).filter((name) => name.startsWith("openai@"))).toHaveLength(1);
      const sdk = join(folder, "packages/openai-sdk/node_modules/openai/package.json");
      expect(JSON.parse(readFileSync(sdk, "utf8"))).toMatchObject({ name: "openai" });
      await install("playground");
      expect(said).toHaveLength(2);
    },
  );
});

describe("the machine's own Node", () => {
  const { version } = process;
  const [, major = "", minor = "", patch = ""] = /^v(\d+)\.(\d+)\.(\d+)/.exec(version) ?? [];
  const official = { variables: { node_shared: false, node_shared_zlib: false } };

  it.each([
    [version, true],
    [`v${major}.${Number(minor) + 1}.0`, true],
    [`v${major}.${minor}.${Number(patch) + 1}`, true],
    [`v${major}.${Number(minor) - 1}.9`, false],
    [`v${Number(major) - 2}.99.0`, false],
    [`v${Number(major) + 1}.0.0`, false],
  ])("of version %s: used is %s", (own, used) => {
    expect(setUp.isOwnNodeGood({ version: own, config: official })).toBe(used);
  });

  it("is not used where it loads libraries of the machine", () => {
    const config = { variables: { ...official.variables, node_shared_openssl: true } };
    expect(setUp.isOwnNodeGood({ version, config })).toBe(false);
  });

  it("is the pinned one in these tests", () => {
    expect(dirname(process.execPath)).toContain(join("node_modules", "node"));
    expect(setUp.isOwnNodeGood()).toBe(true);
  });
});
