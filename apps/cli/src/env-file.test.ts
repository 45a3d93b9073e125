import { execFile } from "node:child_process";
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { readEnvFile, textWith, writeEnvFile } from "./config.ts";

const launcherReader = new URL("../../../infra/dev/launcher/env-file.mjs", import.meta.url).href;

/** What `npm start` reads, in a process of its own: the launcher is plain JavaScript. */
async function readAsLauncher(envFile: string): Promise<unknown> {
  const script = `import { readEnvFile } from ${JSON.stringify(launcherReader)};
    console.log(JSON.stringify(readEnvFile(process.argv[1])));`;
  const { stdout } = await promisify(execFile)(process.execPath, [
    "--input-type=module",
    "-e",
    script,
    envFile,
  ]);
  return JSON.parse(stdout);
}

let folder: string;
let path: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "larkline-env-"));
  path = join(folder, ".env");
});

afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

describe("writeEnvFile", () => {
  it("creates a file that only its owner may read", async () => {
    await writeEnvFile(path, { FEISHU_APP_ID: "cli_1", FEISHU_APP_SECRET: "s" });
    expect(await readFile(path, "utf8")).toBe("FEISHU_APP_ID=cli_1\nFEISHU_APP_SECRET=s\n");
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(await readdir(folder)).toEqual([".env"]);
  });

  it("keeps every other line, replaces the assignment that counts, and closes the file to others", async () => {
    await writeFile(
      path,
      "# mine\n#MODEL=a\nexport MODEL=b # why\n\nMODEL=c\nX = 1\nno assignment",
    );
    await chmod(path, 0o644);
    await writeEnvFile(path, { MODEL: "d", NEW: "n" });
    const text = await readFile(path, "utf8");
    expect(text).toBe(
      "# mine\n#MODEL=a\nexport MODEL=b # why\n\nMODEL=d\nX = 1\nno assignment\nNEW=n\n",
    );
    expect((await stat(path)).mode & 0o777).toBe(0o600);
  });

  it("writes through a link", async () => {
    const target = join(folder, "secrets");
    await writeFile(target, "A=1\n");
    await symlink(target, path);
    await writeEnvFile(path, { A: "2" });
    expect(await readFile(target, "utf8")).toBe("A=2\n");
    expect((await stat(path)).isFile()).toBe(true);
  });

  it("leaves the old file and nothing else when it cannot write", async () => {
    await writeFile(path, "A=1\n");
    await expect(writeEnvFile(path, { A: "two\nlines" })).rejects.toThrow("line break");
    expect(await readFile(path, "utf8")).toBe("A=1\n");
    await mkdir(join(folder, "taken"));
    await expect(writeEnvFile(join(folder, "taken"), { A: "1" })).rejects.toThrow();
    expect((await readdir(folder)).sort()).toEqual([".env", "taken"]);
  });

  it("writes values that the launcher reads back as they are", async () => {
    const values = {
      A: "a b",
      B: "a #b",
      C: `it's "q"`,
      D: "'x'",
      E: "",
      F: "$HOME\\n",
      G: " padded ",
      H: "x=y",
    };
    await writeEnvFile(path, values);
    expect(await readAsLauncher(path)).toEqual(values);
    expect((await readEnvFile(path)).values).toEqual(values);
  });
});

describe("readEnvFile", () => {
  it("reads an absent file as an empty one", async () => {
    expect(await readEnvFile(path)).toMatchObject({ exists: false, values: {}, open: false });
  });

  it("tells lines that mean nothing and names that are set twice", async () => {
    await writeFile(path, "# c\r\nA=1\r\nwhat\r\n\r\nA=2\r\n");
    expect(await readEnvFile(path)).toMatchObject({
      values: { A: "2" },
      unreadable: [3],
      repeated: ["A"],
    });
  });

  it("keeps the line endings of the file", () => {
    expect(textWith("A=1\r\nB=2\r\n", { A: "3" })).toBe("A=3\r\nB=2\r\n");
  });
});
