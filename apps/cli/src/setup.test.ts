import { randomUUID } from "node:crypto";
import { systemClock } from "@larkline/protocol/clock";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { RunnerDirectory } from "@larkline/store/runners";
import { mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { AppInspector, appManifest } from "@larkline/feishu";
import {
  startFeishuSimulator,
  type FeishuSimulator,
  type SimulatorOptions,
} from "@larkline/simulator";
import { startModelServer, type ModelServer } from "@larkline/testkit";
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  inject,
  it,
  onTestFinished,
  vi,
} from "vitest";
import { openWorkplace, type AdminRun, type Workplace } from "./admin.fixture.ts";
import { readCommand } from "./command-line.ts";
import { createPrompt } from "./questions.ts";
import { scanCodeOf, setUp } from "./setup.ts";

const app = { appId: "cli_0123456789abcdef", appSecret: "app-secret" };
const modelKey = "model-key-that-is-right";

let platform: FeishuSimulator;
let model: ModelServer;
let workplace: Workplace;
let file: string;

async function startPlatform(registration: SimulatorOptions["registration"] = {}): Promise<void> {
  platform = await startFeishuSimulator({
    apps: [app],
    registration: { intervalSeconds: 0.05, ...registration },
  });
}

beforeAll(async () => {
  model = await startModelServer({ apiKey: modelKey });
});

afterAll(async () => {
  await model.close();
});

beforeEach(async () => {
  workplace = await openWorkplace();
  file = join(workplace.folder, ".env");
});

afterEach(async () => {
  await workplace.close();
  await platform.close();
});

async function until(run: AdminRun, part: string): Promise<void> {
  await vi.waitFor(() => expect(run.output()).toContain(part), { timeout: 60_000, interval: 10 });
}

async function linkOf(run: AdminRun): Promise<string> {
  await until(run, "user_code=");
  return await vi.waitFor(
    () => {
      const link = /^http\S+user_code=\S+(?=\n)/m.exec(run.output())?.[0];
      if (link === undefined) throw new Error(run.output());
      return link;
    },
    { timeout: 60_000 },
  );
}

function values(text: string): Record<string, string> {
  return Object.fromEntries(
    text.split("\n").flatMap((line) => (line.includes("=") ? [line.split("=", 2)] : [])) as [
      string,
      string,
    ][],
  ); // two parts each
}

/** As the program does, but in this process: starting one takes longer than the set-up. */
function setUpHere(args: readonly string[], env: Record<string, string> = {}): AdminRun {
  const command = readCommand(["setup", "--file", file, ...args], env);
  if (!command.ok || command.value.command !== "setup") {
    throw new Error("these are no options of setup");
  }
  const [input, output, interrupt] = [new PassThrough(), new PassThrough(), new AbortController()];
  const prompt = createPrompt({ input, output, interrupt });
  let printed = "";
  output.setEncoding("utf8").on("data", (data: string) => (printed += data));
  const code = setUp({
    options: command.value,
    env,
    prompt,
    signal: interrupt.signal,
    columns: 0,
    clock: systemClock,
  });
  return {
    interrupt: () => interrupt.abort(),
    output: () => printed,
    type: (line) => void input.write(`${line}\n`),
    endInput: () => void input.end(),
    exitCode: async () => {
      const ended = await code;
      // The last text is on its way.
      await new Promise((resolve) => setImmediate(resolve));
      return ended;
    },
  };
}

describe("npm run setup", () => {
  it("creates an app by a link and writes its credentials for the owner only", async () => {
    await startPlatform();
    const run = workplace.run(["setup", "--yes"], {
      FEISHU_DOMAIN: platform.url,
      ANTHROPIC_API_KEY: modelKey,
      ANTHROPIC_BASE_URL: model.url,
    });
    const link = await linkOf(run);
    const { appId } = platform.registrations.confirm(link);
    expect(await run.exitCode()).toBe(0);
    const written = values(await readFile(file, "utf8"));
    expect(written).toMatchObject({
      FEISHU_APP_ID: appId,
      FEISHU_DOMAIN: platform.url,
      FEISHU_TRANSPORT: "websocket",
      ANTHROPIC_API_KEY: modelKey,
    });
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect(run.output()).toContain('[ok] The bot "Larkline" is enabled');
    expect(run.output()).not.toContain(written["FEISHU_APP_SECRET"]);
    expect(run.output()).not.toContain(modelKey);
    const doctor = workplace.run(["doctor"], { ANTHROPIC_BASE_URL: model.url });
    expect(await doctor.exitCode()).toBe(0);
    expect(doctor.output()).toContain("[ok] All scopes are granted");
    expect(run.output()).toContain("[ok] The command panel has 12 commands");
    expect(doctor.output()).toContain("[ok] The command panel shows all 12 commands");
    // Then the panel is changed elsewhere, and a scope is taken away.
    const inspector = new AppInspector({
      appId,
      appSecret: written["FEISHU_APP_SECRET"] ?? "",
      domain: platform.url,
    });
    await inspector.setPanel([{ name: "help", description: { zh: "旧", en: "old" } }]);
    inspector.close();
    const write = "application:app_slash_command:write";
    platform.setConsole(appId, {
      scopes: appManifest.scopes.map(({ name }) => name).filter((name) => name !== write),
    });
    const later = workplace.run(["doctor"], { ANTHROPIC_BASE_URL: model.url });
    expect(await later.exitCode()).toBe(0);
    expect(later.output()).toMatch(
      /^\[warning\] The command panel differs .*missing: \/.*other description: \/help$/m,
    );
    expect(later.output()).toContain(`[warning] Recommended scopes are missing: ${write}`);
  });

  it("says that the person refused, or that the link expired, and writes nothing", async () => {
    await startPlatform();
    const refused = setUpHere(["--yes"], { FEISHU_DOMAIN: platform.url });
    platform.registrations.refuse(await linkOf(refused));
    expect(await refused.exitCode()).toBe(1);
    expect(refused.output()).toContain("The app was refused. Nothing was written.");
    await platform.close();
    await startPlatform({ expiresInSeconds: 0.2 });
    const expired = setUpHere(["--yes", "--lang", "zh"], { FEISHU_DOMAIN: platform.url });
    expect(await expired.exitCode()).toBe(1);
    expect(expired.output()).toContain("链接已过期，请重新运行 npm run setup。没有写入任何内容。");
    expect(await readdir(workplace.folder)).toEqual([]);
  });

  it("asks before a new app takes the place of another, and creates none when it may not", async () => {
    await startPlatform();
    await writeFile(file, "FEISHU_APP_ID=cli_old\nFEISHU_APP_SECRET=old\n");
    const env = { FEISHU_DOMAIN: platform.url };
    const without = setUpHere(["--yes"], env);
    expect(await without.exitCode()).toBe(1);
    expect(without.output()).toContain("--overwrite");
    const asked = setUpHere([], env);
    await until(asked, "sets FEISHU_APP_ID, FEISHU_APP_SECRET already. Replace? [y/N] ");
    asked.type("");
    expect(await asked.exitCode()).toBe(1);
    expect(platform.registrations.polls).toBe(0);
    expect(await readFile(file, "utf8")).toBe("FEISHU_APP_ID=cli_old\nFEISHU_APP_SECRET=old\n");
  });

  it("asks for an existing app's credentials, prints what to tick, and keeps the rest of .env", async () => {
    await startPlatform();
    await writeFile(file, "# mine\nLOG_LEVEL=debug\n");
    const run = workplace.run(["setup", "--manual"], { ANTHROPIC_BASE_URL: model.url });
    for (const line of [
      "nonsense",
      app.appId,
      "app-secret",
      platform.url,
      "pigeon",
      "webhook",
      "key",
      "",
      modelKey,
      "",
    ]) {
      run.type(line);
    }
    expect(await run.exitCode()).toBe(0);
    const { scopes, events, callbacks } = appManifest;
    for (const { name, purpose } of [...scopes, ...events, ...callbacks]) {
      expect(run.output()).toMatch(
        new RegExp(`^  ${name} +${purpose.en.replaceAll(/[()]/g, "\\$&")}$`, "m"),
      );
    }
    expect(run.output()).toContain("/feishu/events");
    expect(run.output()).toContain("/feishu/cards");
    expect(run.output()).toContain("An app id is cli_ and 16 hexadecimal digits.");
    expect(run.output()).toContain("It must be one of websocket, webhook, both.");
    expect(await readFile(file, "utf8")).toBe(
      [
        "# mine",
        "LOG_LEVEL=debug",
        `FEISHU_APP_ID=${app.appId}`,
        "FEISHU_APP_SECRET=app-secret",
        `FEISHU_DOMAIN=${platform.url}`,
        "FEISHU_TRANSPORT=webhook",
        "FEISHU_ENCRYPT_KEY=key",
        `ANTHROPIC_API_KEY=${modelKey}`,
        "",
      ].join("\n"),
    );
  });

  it("writes nothing when Feishu refuses the secret, or the vendor the key", async () => {
    await startPlatform();
    const env = {
      FEISHU_APP_ID: app.appId,
      FEISHU_APP_SECRET: "wrong",
      FEISHU_DOMAIN: platform.url,
    };
    const wrong = setUpHere(["--manual", "--yes"], env);
    expect(await wrong.exitCode()).toBe(1);
    expect(wrong.output()).toContain(
      "[problem] Feishu refuses FEISHU_APP_ID and FEISHU_APP_SECRET (10015)",
    );
    const key = setUpHere(["--manual", "--yes"], {
      ...env,
      FEISHU_APP_SECRET: app.appSecret,
      ANTHROPIC_API_KEY: "wrong",
      ANTHROPIC_BASE_URL: model.url,
    });
    expect(await key.exitCode()).toBe(1);
    expect(key.output()).toContain("refuses ANTHROPIC_API_KEY (401)");
    const missing = setUpHere(["--manual", "--yes", "--app-id", app.appId]);
    expect(await missing.exitCode()).toBe(1);
    expect(missing.output()).toContain("FEISHU_APP_SECRET is not set. Nothing was written.");
    expect(await readdir(workplace.folder)).toEqual([]);
  });

  it("replaces values only with --overwrite, and keeps those that are the same without it", async () => {
    await startPlatform();
    await writeFile(file, `FEISHU_APP_ID=${app.appId}\nFEISHU_APP_SECRET=old\nX=1\n`);
    const env = { FEISHU_APP_SECRET: app.appSecret, FEISHU_DOMAIN: platform.url };
    const kept = setUpHere(["--manual", "--yes"], env);
    expect(await kept.exitCode()).toBe(1);
    expect(kept.output()).toContain("FEISHU_APP_SECRET stay as they are");
    expect(await readFile(file, "utf8")).toContain("FEISHU_APP_SECRET=old");
    const replaced = setUpHere(["--manual", "--yes", "--overwrite", "--model", "openai/m"], env);
    expect(await replaced.exitCode()).toBe(0);
    expect(values(await readFile(file, "utf8"))).toEqual({
      FEISHU_APP_ID: app.appId,
      FEISHU_APP_SECRET: app.appSecret,
      X: "1",
      FEISHU_DOMAIN: platform.url,
      FEISHU_TRANSPORT: "websocket",
      MODEL: "openai/m",
    });
  });

  it("shows the way to grant what a new app still lacks", async () => {
    await startPlatform();
    platform.setConsole(app.appId, { scopes: ["im:message"] });
    const env = {
      FEISHU_APP_ID: app.appId,
      FEISHU_APP_SECRET: app.appSecret,
      FEISHU_DOMAIN: platform.url,
    };
    const run = setUpHere(["--manual", "--yes"], env);
    expect(await run.exitCode()).toBe(0);
    expect(run.output()).toMatch(
      /Grant them: \S+\/auth\?q=im:message\.p2p_msg:readonly,\S*cardkit:card:write/,
    );
  });

  it("registers commands in the panel: own ones too, changed ones anew, unknown ones no more", async () => {
    await startPlatform();
    const config = join(workplace.folder, "larkline.config.ts");
    const daily = { description: "每日简报 Daily brief", prompt: "Brief me." };
    await writeFile(
      config,
      `export default ${JSON.stringify({ agents: { default: { commands: { daily } } } })};`,
    );
    const inspector = new AppInspector({ ...app, domain: platform.url });
    const old = { zh: "旧", en: "old" };
    await inspector.setPanel([
      { name: "help", description: old },
      { name: "retired", description: old },
    ]);
    const env = {
      FEISHU_APP_ID: app.appId,
      FEISHU_APP_SECRET: app.appSecret,
      FEISHU_DOMAIN: platform.url,
    };
    const run = setUpHere(["--manual", "--yes"], { ...env, LARKLINE_CONFIG: config });
    expect(await run.exitCode()).toBe(0);
    expect(run.output()).toContain("The command panel has 13 commands");
    expect(run.output()).toContain("removed, not commands of the bot: /retired");
    const help = {
      name: "help",
      description: { zh: "显示可用的命令", en: "show what you can type" },
    };
    const after = await inspector.panelDrift([
      help,
      { name: "daily", description: { zh: old.zh, en: old.en } },
    ]);
    expect(after).toMatchObject({ missing: [], changed: ["daily"] });
    expect(after.unknown).toHaveLength(11);
    const calls = platform.apiCalls.length;
    expect(
      await setUpHere(["--manual", "--yes"], { ...env, LARKLINE_CONFIG: config }).exitCode(),
    ).toBe(0);
    const writes = platform.apiCalls
      .slice(calls)
      .filter(({ path, method }) => /slash/.test(path) && method !== "GET");
    expect(writes).toEqual([]);
    inspector.close();
  });

  it("names the scopes of people that the tools of running runners need", async () => {
    await startPlatform();
    const redis = connectRedis(inject("redisUrl"));
    onTestFinished(async () => await closeRedis(redis));
    const namespace = `test-${randomUUID()}`;
    const spec = { name: "find_documents", description: "", inputSchema: { type: "object" } };
    const identity = { as: "person" as const, scopes: ["search:docs:read"] };
    const tool = { spec, effect: "pure", requiresApproval: false, timeoutMs: 1_000 } as const;
    await new RunnerDirectory({ redis, namespace }).announce(
      { runner: "feishu", instance: "one", tools: [{ ...tool, identity }] },
      60_000,
    );
    const run = setUpHere(["--yes"], {
      FEISHU_DOMAIN: platform.url,
      REDIS_URL: inject("redisUrl"),
      REDIS_NAMESPACE: namespace,
    });
    platform.registrations.confirm(await linkOf(run));
    expect(await run.exitCode()).toBe(0);
    expect(run.output()).toContain(
      "the app lacks scopes of people: search:docs:read, offline_access",
    );
    expect(run.output()).toContain("/auth?q=search:docs:read,offline_access&");
  });

  it("sets up a bot without the scopes of the panel, and says which ones those are", async () => {
    await startPlatform();
    platform.setConsole(app.appId, { scopes: ["im:message"] });
    const env = {
      FEISHU_APP_ID: app.appId,
      FEISHU_APP_SECRET: app.appSecret,
      FEISHU_DOMAIN: platform.url,
    };
    const run = setUpHere(["--manual", "--yes"], env);
    expect(await run.exitCode()).toBe(0);
    expect(run.output()).toContain("[warning] The command panel may not be read and written");
    expect(run.output()).toContain(
      "/auth?q=application:app_slash_command:read,application:app_slash_command:write&",
    );
    expect(await readFile(file, "utf8")).toContain(app.appId);
  });

  it("leaves .env as it is when it is interrupted while it waits or verifies", async () => {
    await startPlatform();
    const old = "FEISHU_APP_ID=cli_old\n";
    await writeFile(file, old);
    const waiting = workplace.run(["setup", "--yes", "--overwrite"], {
      FEISHU_DOMAIN: platform.url,
    });
    await linkOf(waiting);
    waiting.interrupt("SIGINT");
    expect(await waiting.exitCode()).toBe(130);
    expect(waiting.output()).toContain("Cancelled; nothing was written.");
    platform.faults.add({ match: { path: "/open-apis" }, action: { kind: "hang" } });
    const called = new Promise<void>((resolve) => {
      platform.on("apiCall", ({ path }) => {
        if (path.startsWith("/open-apis")) resolve();
      });
    });
    const env = {
      FEISHU_APP_ID: app.appId,
      FEISHU_APP_SECRET: app.appSecret,
      FEISHU_DOMAIN: platform.url,
    };
    const verifying = workplace.run(["setup", "--manual", "--yes", "--overwrite"], env);
    await called;
    verifying.interrupt("SIGTERM");
    expect(await verifying.exitCode()).toBe(130);
    const asking = workplace.run(["setup", "--manual"]);
    await until(asking, "App ID");
    asking.interrupt("SIGINT");
    expect(await asking.exitCode()).toBe(130);
    expect(await readFile(file, "utf8")).toBe(old);
    expect(await readdir(workplace.folder)).toEqual([".env"]);
  });

  it("says where the credentials are when the file cannot be written in the end, and shows no secret", async () => {
    await startPlatform();
    const run = setUpHere(["--yes"], { FEISHU_DOMAIN: platform.url });
    const link = await linkOf(run);
    await mkdir(file);
    const { appId } = platform.registrations.confirm(link);
    expect(await run.exitCode()).toBe(1);
    expect(run.output()).toContain(
      `copy its credentials from ${platform.url}/app/${appId}/baseinfo`,
    );
  });

  it("ends when its input does", async () => {
    await startPlatform();
    const run = setUpHere(["--manual", "--lang", "zh"]);
    run.type(app.appId);
    run.endInput();
    expect(await run.exitCode()).toBe(130);
    expect(run.output()).toContain("权限管理 · 必需");
    expect(run.output()).toContain("已取消，没有写入任何内容。");
  });
});

describe("the code to scan", () => {
  it("is drawn where it fits: the link of a registration does in 80 columns", async () => {
    await startPlatform();
    const run = setUpHere(["--yes"], { FEISHU_DOMAIN: platform.url });
    const link = await linkOf(run);
    platform.registrations.refuse(link);
    expect(await run.exitCode()).toBe(1);
    const lines = (scanCodeOf(link, 80) ?? "").split("\n");
    const widths = new Set(lines.map((line) => line.length));
    expect(widths.size).toBe(1);
    expect(Math.max(...widths)).toBeGreaterThan(21);
    expect(scanCodeOf(link, 40)).toBeUndefined();
    expect(scanCodeOf("https://example.com", 0)).toBeUndefined();
  });
});
