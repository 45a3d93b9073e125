import { once } from "node:events";
import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { runnerKeyOf } from "@larkline/protocol/runner";
import { patientClock } from "@larkline/testkit";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { root } from "../docs/document.ts";
import { startLauncher, type LauncherOptions, type LauncherRun } from "./launcher-process.ts";

const cleanUps: (() => void)[] = [];

async function launch(
  env: Record<string, string> = {},
  options: LauncherOptions = {},
): Promise<LauncherRun> {
  const run = await startLauncher(env, options);
  cleanUps.push(run.cleanUp);
  return run;
}

/** A server on loopback that answers everything with this status. */
async function answerWith(status: number): Promise<number> {
  const server = createServer((_request, response) => void response.writeHead(status).end("{}"));
  await once(server.listen(0, "127.0.0.1"), "listening");
  cleanUps.push(() => void server.close());
  return (server.address() as AddressInfo).port; // it listens on TCP
}

async function until(fact: () => void): Promise<void> {
  await vi.waitFor(fact, { timeout: 100_000, interval: 20 });
}

async function lastLineOf(run: LauncherRun): Promise<string | undefined> {
  await run.exitCode();
  return run.output().trimEnd().split("\n").at(-1);
}

afterEach(() => {
  for (const cleanUp of cleanUps.splice(0)) cleanUp();
});

describe("npm start that cannot work", () => {
  it("names the port that is taken and the variable that changes it", async () => {
    const taken = String(await answerWith(200));
    const run = await launch({ INGRESS_PORT: taken });
    expect(await lastLineOf(run)).toBe(
      `Port ${taken} (ingress) is taken: stop the program that uses it, or set INGRESS_PORT to a free port.`,
    );
    expect(await run.exitCode()).toBe(1);
  });

  it("names all ports that are taken at once", async () => {
    const [one, other] = [String(await answerWith(200)), String(await answerWith(200))];
    const run = await launch({ INGRESS_PORT: one, CONSOLE_PORT: other });
    expect(await run.exitCode()).toBe(1);
    expect(run.output()).toContain(`Port ${one} (ingress) is taken`);
    expect(run.output()).toContain(`Port ${other} (console) is taken`);
  });

  it("speaks Chinese where the terminal does", async () => {
    const taken = String(await answerWith(200));
    const run = await launch({ TOOL_RUNNER_PORT: taken, LANG: "zh_CN.UTF-8" });
    expect(await lastLineOf(run)).toContain(`端口 ${taken}（tool-runner）已被占用`);
  });

  it.each([
    [{ REDIS_URL: "redis://127.0.0.1:1" }, "Redis at 127.0.0.1:1 does not answer (ECONNREFUSED)"],
    [{ REDIS_URL: "localhost:6379" }, "REDIS_URL must look like redis://"],
    [{ FEISHU_APP_ID: "cli_1" }, "FEISHU_APP_ID is set, but FEISHU_APP_SECRET is not"],
    [{ MODEL: "openai/x" }, "MODEL is openai/x, but OPENAI_API_KEY is not set"],
    [{ CALL_SIGNING_KEY: "short" }, "CALL_SIGNING_KEY must have at least 32 characters"],
    [
      { PLAYGROUND_PORT: "eighty" },
      'PLAYGROUND_PORT must be a port from 1 to 65535, but is "eighty"',
    ],
  ])("with %j it ends in one line that says what to do", async (env, line) => {
    const run = await launch(env);
    expect(await lastLineOf(run)).toContain(line);
    expect(await run.exitCode()).toBe(1);
  });

  it("refuses a data folder that others may read and that holds other things, and leaves it as it was", async () => {
    const prepare = (folder: string) => {
      writeFileSync(join(folder, "of-another-program"), "x");
      chmodSync(folder, 0o755);
    };
    const taken = String(await answerWith(200));
    const run = await launch({ INGRESS_PORT: taken }, { prepare });
    expect(await lastLineOf(run)).toBe(
      `The data folder ${run.dataDirectory} is not private: run "chmod 700 ${run.dataDirectory}", or set LARKLINE_DATA_DIR to a new folder.`,
    );
    expect(await run.exitCode()).toBe(1);
    expect(statSync(run.dataDirectory).mode & 0o777).toBe(0o755);
    expect(readdirSync(run.dataDirectory)).toEqual(["of-another-program"]);
  });

  it("says which key the vendor refuses, without showing it", async () => {
    const port = await answerWith(401);
    const run = await launch({
      ANTHROPIC_API_KEY: "s3cret",
      ANTHROPIC_BASE_URL: `http://127.0.0.1:${port}`,
    });
    expect(await lastLineOf(run)).toContain(
      `ANTHROPIC_API_KEY was refused by 127.0.0.1:${port} (401)`,
    );
    expect(run.output()).not.toContain("s3cret");
  });
});

/** What other users of this machine may do anything with, below a folder and the folder itself. */
function openToOthers(folder: string): string[] {
  const all = readdirSync(folder, { recursive: true, encoding: "utf8" });
  return ["", ...all].filter((name) => {
    // A file that another one takes the place of may be gone by now.
    const { mode } = lstatSync(join(folder, name), { throwIfNoEntry: false }) ?? { mode: 0 };
    return (mode & 0o077) !== 0;
  });
}

/** Those that run from their bundles. */
function servicesOf(run: LauncherRun, name: string): number[] {
  return run.processes().filter((pid) => commandOf(pid).includes(`/${name}.mjs\0`));
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return ""; // ended meanwhile
  }
}

function serviceOf(run: LauncherRun, name: string): number {
  const [found] = servicesOf(run, name);
  if (found === undefined) throw new Error(`${name} does not run`);
  return found;
}

/** The launcher is plain JavaScript, without types. */
const { serviceEnv }: { serviceEnv(name: string, context: object): Record<string, string> } =
  await import(new URL("../../infra/dev/launcher/service-env.mjs", import.meta.url).href);

describe("what npm start tells a service", () => {
  const service = (name: string) => ({ service: name, host: "127.0.0.1", port: 1 });
  const names = ["playground", "ingress", "agent-worker", "tool-runner", "console"];
  const plan = {
    ports: names.map(service),
    model: { kind: "scripted" },
    feishu: { kind: "real", domain: "feishu" },
  };
  const env = {
    FEISHU_APP_SECRET_DESK: "s",
    FEISHU_ENCRYPT_KEY_DESK: "k",
    CONSOLE_PASSWORD: "p",
    RUNNER_KEY: "r",
  };
  const given = (name: string) => {
    const all = serviceEnv(name, {
      env,
      plan,
      redisUrl: "redis://x",
      modelPort: 2,
      signingKey: "signing",
      grantKey: "g",
    });
    const secret = Object.entries(all).filter(([variable]) =>
      /SECRET|_KEY|PASSWORD/.test(variable),
    );
    return Object.fromEntries(secret.filter(([variable]) => variable !== "ANTHROPIC_API_KEY"));
  };

  it("is what it needs of the secrets, and no others", () => {
    expect(given("ingress")).toEqual({ FEISHU_APP_SECRET_DESK: "s", FEISHU_ENCRYPT_KEY_DESK: "k" });
    expect(given("agent-worker")).toEqual({
      FEISHU_APP_SECRET_DESK: "s",
      CALL_SIGNING_KEY: "signing",
      GRANT_KEY: "g",
    });
    expect(given("tool-runner")).toEqual({ RUNNER_KEY: runnerKeyOf("signing", "local") });
    expect(given("console")).toEqual({ CONSOLE_PASSWORD: "p" });
    expect(given("playground")).toEqual({});
  });
});

describe.runIf(process.platform === "linux")("npm start", () => {
  it(
    "brings everything up, answers a question, and leaves nothing behind at Ctrl-C",
    { timeout: 150_000 },
    async () => {
      const run = await launch({
        FEISHU_APP_SECRET_DESK: "secret-of-desk",
        FEISHU_ENCRYPT_KEY_DESK: "key-of-desk",
      });
      await until(() => expect(run.output()).toContain("Larkline is running."));
      expect(run.output()).toContain("(npm run chat)");
      expect(run.output()).toContain("npm run -s runner -- add <name> <file>");
      expect(run.output()).toContain(`http://127.0.0.1:${run.ports.playground}`);
      const answer = await fetch(`http://127.0.0.1:${run.ports.ingress}/chat`, {
        method: "POST",
        body: JSON.stringify({ message: "what is 12*7?" }),
      });
      expect(await answer.text()).toMatch(/"tool_result".*84[^]*"type":"done"/);
      const keyFile = join(run.dataDirectory, "signing-key");
      const signingKey = readFileSync(keyFile, "utf8").trim();
      expect(statSync(keyFile).mode & 0o777).toBe(0o600);
      const secrets = [
        signingKey,
        runnerKeyOf(signingKey, "local"),
        "secret-of-desk",
        "key-of-desk",
      ];
      for (const name of ["ingress", "agent-worker", "tool-runner", "console", "playground"]) {
        const shown = readFileSync(`/proc/${serviceOf(run, name)}/environ`, "utf8");
        expect([name, secrets.filter((secret) => shown.includes(secret))]).toEqual([name, []]);
      }
      expect(run.output()).toContain(`http://127.0.0.1:${run.ports.console}`);
      const overview = async () =>
        await (await fetch(`http://127.0.0.1:${run.ports.console}`)).text();
      // A worker that its machine has stopped for a second counts as dead until it runs again.
      await expect
        .poll(overview, { timeout: 60_000 })
        .toMatch(/Workers alive<\/dt>\s*<dd>1<[^]*href="\/runners">local</);
      let isLate = false;
      const cancel = patientClock.after(10_000, () => (isLate = true));
      run.kill("SIGINT");
      run.kill("SIGINT");
      expect(await run.exitCode()).toBe(0);
      cancel();
      expect(isLate, "it takes less than ten seconds").toBe(false);
      expect(run.processes()).toEqual([]);
      expect(run.output().trimEnd().endsWith("Stopped.")).toBe(true);
    },
  );

  it("starts a killed service again, and says which one cannot live", async () => {
    const run = await launch();
    await until(() => expect(run.output()).toContain("Larkline is running."));
    const first = serviceOf(run, "agent-worker");
    process.kill(first, "SIGKILL");
    await until(() =>
      expect(run.output()).toContain(
        "agent-worker ended unexpectedly (SIGKILL) and is started again",
      ),
    );
    const answer = await fetch(`http://127.0.0.1:${run.ports.ingress}/chat`, {
      method: "POST",
      body: JSON.stringify({ message: "hello" }),
    });
    expect(await answer.text()).toContain('"type":"done"');
    let last = first;
    for (let death = 0; death < 3; death += 1) {
      await until(() => expect(serviceOf(run, "agent-worker")).not.toBe(last));
      last = serviceOf(run, "agent-worker");
      process.kill(last, "SIGKILL");
    }
    expect(await lastLineOf(run)).toContain("agent-worker ended unexpectedly (SIGKILL)");
    expect(await run.exitCode()).toBe(1);
    expect(run.processes()).toEqual([]);
  });
});

describe.runIf(process.platform === "linux")("npm start with files that change", () => {
  const folder = mkdtempSync(join(tmpdir(), "larkline-bot-"));
  const [config, tools] = [join(folder, "larkline.config.ts"), join(folder, "tools", "dice.ts")];
  const [started, released] = [join(folder, "started"), join(folder, "released")];
  afterAll(() => rmSync(folder, { recursive: true }));

  const configWith = (name: string): string =>
    `export default { agents: { default: { description: "${name}" } } };\n`;

  /** A tool that the scripted model calls at "roll a die"; its result comes when `waitsFor` exists. */
  const toolWith = (result: string, waitsFor = folder): string => `
    import { existsSync, writeFileSync } from "node:fs";
    import { defineTool } from "@larkline/tool-kit";
    export default defineTool({
      name: "roll_dice", description: "Rolls.", input: { type: "object" }, effect: "pure",
      run: async () => {
        writeFileSync(${JSON.stringify(started)}, "");
        while (!existsSync(${JSON.stringify(waitsFor)})) await new Promise((resolve) => setTimeout(resolve, 20));
        return "${result}";
      },
    });`;

  it(
    "loads them without losing a call, and keeps what runs when one is broken",
    { timeout: 200_000 },
    async () => {
      mkdirSync(join(folder, "tools"));
      writeFileSync(config, configWith("one"));
      writeFileSync(tools, toolWith("first", released));
      const run = await launch({ LARKLINE_CONFIG: config, RUNNER_TOOLS: tools });
      await until(() => expect(run.output()).toContain("Larkline is running."));
      const rolled = async (): Promise<string> => {
        const body = JSON.stringify({ message: "roll a die" });
        return await (
          await fetch(`http://127.0.0.1:${run.ports.ingress}/chat`, { method: "POST", body })
        ).text();
      };

      const early = rolled();
      await until(() => expect(existsSync(started)).toBe(true));
      writeFileSync(tools, toolWith("second"));
      await until(() => expect(servicesOf(run, "tool-runner")).toHaveLength(2));
      writeFileSync(released, "");
      expect(await early).toMatch(/"tool_result".*first[^]*"type":"done"/);
      await until(() =>
        expect(run.output()).toContain("dice.ts changed: tool-runner started again with it."),
      );
      expect(await rolled()).toMatch(/"tool_result".*second[^]*"type":"done"/);

      writeFileSync(tools, "export default {");
      const kept =
        "dice.ts changed, but tool-runner cannot start with it (see above): nothing was replaced.";
      await until(() => expect(run.output()).toContain(kept));
      expect(await rolled()).toMatch(/"tool_result".*second[^]*"type":"done"/);
      writeFileSync(tools, toolWith("third"));
      await until(() => expect(run.output().split("tool-runner started again")).toHaveLength(3));

      const faces = join(folder, "tools", "lib", "faces.ts");
      mkdirSync(join(folder, "tools", "lib"));
      writeFileSync(faces, 'export const face = "fourth";\n');
      const reloads = (file: string) =>
        run.output().split(`${file} changed: tool-runner started again with it.`).length - 1;
      // The new file is loaded from the change on with which the tool imports it.
      const imported = toolWith("a ${face}").replace(/"(a .*)"/, "`$1`");
      writeFileSync(tools, `import { face } from "./lib/faces.ts";\n${imported}`);
      await until(() => expect(reloads("dice.ts, lib/faces.ts")).toBe(1));
      writeFileSync(join(folder, "tools", "notes.ts"), "nothing imports this");
      writeFileSync(faces, 'export const face = "fifth";\n');
      await until(() => expect(reloads("lib/faces.ts")).toBe(2));
      expect(run.output()).not.toContain("notes.ts");
      expect(await rolled()).toMatch(/"tool_result".*a fifth[^]*"type":"done"/);

      const before = ["ingress", "agent-worker", "tool-runner", "console"].map((name) =>
        serviceOf(run, name),
      );
      writeFileSync(config, "export default { agent: {} };\n");
      await until(() =>
        expect(run.output()).toContain(
          "larkline.config.ts changed, but tool-runner cannot start with it",
        ),
      );
      expect(
        ["ingress", "agent-worker", "tool-runner", "console"].map((name) => serviceOf(run, name)),
      ).toEqual(before);
      writeFileSync(config, configWith("two"));
      const loaded =
        "larkline.config.ts changed: tool-runner, agent-worker, ingress, console started again with it.";
      await until(() => expect(run.output()).toContain(loaded));
      expect(await rolled()).toMatch(/"tool_result".*a fifth[^]*"type":"done"/);
      expect(run.output()).not.toContain("ended unexpectedly");
      run.kill("SIGINT");
      expect(await run.exitCode()).toBe(0);
      expect(run.processes()).toEqual([]);
    },
  );
});

describe.runIf(process.platform === "linux")("npm start without a configuration", () => {
  /** A checkout that may get files of its own: the folders of this one, except those of the launcher. */
  function newCheckout(): string {
    const checkout = mkdtempSync(join(tmpdir(), "larkline-checkout-"));
    cleanUps.push(() => rmSync(checkout, { recursive: true }));
    cpSync(join(root, "infra/dev"), join(checkout, "infra/dev"), { recursive: true });
    for (const name of [
      "apps",
      "packages",
      "simulator",
      "node_modules",
      "package.json",
      "pnpm-workspace.yaml",
    ]) {
      symlinkSync(join(root, name), join(checkout, name));
    }
    return checkout;
  }

  it(
    "loads the first larkline.config.ts as soon as it is there",
    { timeout: 150_000 },
    async () => {
      const checkout = newCheckout();
      const run = await launch({}, { checkout });
      await until(() => expect(run.output()).toContain("Larkline is running."));
      const config = join(checkout, "larkline.config.ts");
      writeFileSync(config, "export default { agent: {} };\n");
      await until(() =>
        expect(run.output()).toContain("config.ts changed, but tool-runner cannot start with it"),
      );
      const commands = '{ tea: { prompt: "show", description: "Makes tea." } }';
      writeFileSync(config, `export default { agents: { default: { commands: ${commands} } } };\n`);
      const loaded =
        "larkline.config.ts changed: tool-runner, agent-worker, ingress, console started again with it.";
      await until(() => expect(run.output()).toContain(loaded));
      const body = JSON.stringify({ message: "/help", lang: "en" });
      const help = await fetch(`http://127.0.0.1:${run.ports.ingress}/chat`, {
        method: "POST",
        body,
      });
      expect(await help.text()).toContain("/tea");
    },
  );
});

describe.runIf(process.platform === "linux")(
  "npm start in an open folder, that listens everywhere",
  () => {
    let run: LauncherRun;
    beforeAll(async () => {
      const prepare = (folder: string) => {
        mkdirSync(join(folder, "redis"));
        writeFileSync(join(folder, "redis", "dump.rdb"), "");
        mkdirSync(join(folder, "compile-cache"));
        mkdirSync(join(folder, "blobs"));
        writeFileSync(join(folder, "blobs", "x"), "x");
        for (const name of ["", "redis", "redis/dump.rdb", "blobs", "blobs/x"]) {
          chmodSync(join(folder, name), 0o777);
        }
      };
      run = await startLauncher({ HOST: "0.0.0.0" }, { umask: "000", prepare });
      await until(() => expect(run.output()).toContain("Larkline is running."));
    });
    afterAll(() => run.cleanUp());

    it("keeps a console without a password on this machine", async () => {
      const elsewhere = Object.values(networkInterfaces())
        .flatMap((all) => all ?? [])
        .find(({ internal }) => !internal);
      const host = elsewhere?.family === "IPv4" ? elsewhere.address : "127.0.0.2";
      expect((await fetch(`http://${host}:${run.ports.ingress}/health`)).status).toBe(200);
      await expect(fetch(`http://${host}:${run.ports.console}/health`)).rejects.toThrow();
      expect((await fetch(`http://127.0.0.1:${run.ports.console}/health`)).status).toBe(200);
    });

    it("keeps its data from other users of the machine, whatever the umask and an older version left", async () => {
      await fetch(`http://127.0.0.1:${run.ports.ingress}/chat`, {
        method: "POST",
        body: JSON.stringify({ message: "what is 12*7?" }),
      }).then(async (answer) => expect(await answer.text()).toContain('"type":"done"'));
      expect(openToOthers(run.dataDirectory)).toEqual([]);
      const there = readdirSync(run.dataDirectory, { recursive: true, encoding: "utf8" }).join(
        "\n",
      );
      for (const name of [
        "redis.url",
        "signing-key",
        "launcher.pid",
        "logs/ingress.log",
        "redis/appendonlydir",
      ]) {
        expect(there).toContain(name);
      }
    });

    it("leaves nothing behind when the launcher itself is killed", async () => {
      run.kill("SIGKILL");
      await until(() => expect(run.processes()).toEqual([]));
    });
  },
);
