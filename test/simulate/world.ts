import { createHash } from "node:crypto";
import { fileURLToPath } from "node:url";
import { startWorkerApp } from "@larkline/agent-worker";
import { startIngressApp } from "@larkline/ingress";
import { startToolRunnerApp } from "@larkline/tool-runner";
import { runnerKeyOf } from "@larkline/protocol/runner";
import { startFeishuSimulator, type FeishuSimulator } from "@larkline/simulator";
import { startModelServer, type ModelScript, type ModelServer } from "@larkline/testkit";
import type { Driver } from "./driver.ts";
import { startHttpLine, startRedisLine, type Line } from "./lines.ts";
import { kill, simulatedClock, time, within, type Owner } from "./time.ts";

export type Kind = "ingress" | "agent-worker" | "tool-runner";

const starts = {
  ingress: startIngressApp,
  "agent-worker": startWorkerApp,
  "tool-runner": startToolRunnerApp,
};

/** A "process" of the product: an app with lines of its own to Redis, the platform and the model. */
export interface Process {
  readonly kind: Kind;
  readonly owner: Owner;
  readonly lines: readonly Line[];
  /** Settles when it works; rejects when it cannot start. */
  readonly started: Promise<{ port: number; close(): Promise<void> }>;
}

const signingKey = "5".repeat(64);
const app = {
  appId: "cli_51a0000000000001",
  appSecret: "secret",
  encryptKey: "key",
  verificationToken: "token",
};
const tools = fileURLToPath(new URL("./tools.ts", import.meta.url));
const config = fileURLToPath(new URL("./agents.ts", import.meta.url));
/** Callers of the HTTP API, by name, with their keys. */
export const callerKeys = { ada: "key-of-ada", bo: "key-of-bo" } as const;
const apiKeys = Object.entries(callerKeys).map(
  ([name, key]) => `${name}:${createHash("sha256").update(key).digest("hex")}`,
);

/** The product with everything around it: a platform and a model of its own, and Redis. */
export class World {
  readonly appId = app.appId;
  readonly feishu: FeishuSimulator;
  readonly model: ModelServer;
  readonly processes = new Set<Process>();
  /** What the processes of the product have said. */
  readonly log: string[] = [];
  readonly #driver: Driver;
  readonly #redisPort: number;
  /** To the ingress that lives: from the platform, and from callers of the HTTP API. */
  readonly #inbound: { webhook: Line; api: Line };
  readonly #ended: Line[] = [];
  #ingress: { owner: Owner; port: number };
  #count = 0;

  static async start(
    driver: Driver,
    { redisPort, script }: { redisPort: number; script: ModelScript },
  ): Promise<World> {
    const model = await startModelServer({ script });
    const feishu = await startFeishuSimulator({
      apps: [{ ...app, name: "Larkline", transport: "webhook" }],
      limits: "off",
      retryDelaysMs: [1_000, 3_000, 10_000, 30_000],
      clock: simulatedClock,
    });
    const nobody = { name: "nobody", isDead: true, stoppedUntilMs: 0, servers: new Set<never>() };
    const ingress = { owner: nobody as Owner, port: 0 };
    const toIngress = {
      owner: () => ingress.owner,
      targetPort: () => ingress.port,
      traffic: driver,
    };
    const webhook = await startHttpLine({ ...toIngress, name: "webhook" });
    const api = await startHttpLine({ ...toIngress, name: "API" });
    feishu.setWebhookUrl(app.appId, `http://127.0.0.1:${webhook.port}/feishu/events`);
    return new World({ driver, redisPort, model, feishu, inbound: { webhook, api }, ingress });
  }

  private constructor(parts: {
    driver: Driver;
    redisPort: number;
    model: ModelServer;
    feishu: FeishuSimulator;
    inbound: { webhook: Line; api: Line };
    ingress: { owner: Owner; port: number };
  }) {
    this.#driver = parts.driver;
    this.#redisPort = parts.redisPort;
    this.model = parts.model;
    this.feishu = parts.feishu;
    this.#inbound = parts.inbound;
    this.#ingress = parts.ingress;
  }

  /** Where callers of the HTTP API reach the product. */
  get apiUrl(): string {
    return `http://127.0.0.1:${this.#inbound.api.port}`;
  }

  /** Begins to start a process; it works some time later. */
  async begin(kind: Kind): Promise<Process> {
    this.#count += 1;
    const owner: Owner = {
      name: `${kind} ${this.#count}`,
      isDead: false,
      stoppedUntilMs: 0,
      servers: new Set(),
    };
    const given = { owner: () => owner, traffic: this.#driver };
    const portOf = (url: string) => () => Number(new URL(url).port);
    const [redis, platform, model] = await Promise.all([
      startRedisLine({ ...given, targetPort: () => this.#redisPort }),
      startHttpLine({ ...given, name: "Feishu", targetPort: portOf(this.feishu.url) }),
      startHttpLine({ ...given, name: "model", targetPort: portOf(this.model.url) }),
    ]);
    const env = {
      HOST: "127.0.0.1",
      PORT: "0",
      LOG_LEVEL: "info",
      REDIS_URL: `redis://127.0.0.1:${redis.port}`,
      FEISHU_APP_ID: app.appId,
      FEISHU_APP_SECRET: app.appSecret,
      FEISHU_ENCRYPT_KEY: app.encryptKey,
      FEISHU_VERIFICATION_TOKEN: app.verificationToken,
      FEISHU_DOMAIN: `http://127.0.0.1:${platform.port}`,
      FEISHU_TRANSPORT: "webhook",
      MODEL: "anthropic/claude-sonnet-4-6",
      ANTHROPIC_BASE_URL: `http://127.0.0.1:${model.port}`,
      ANTHROPIC_API_KEY: "scripted",
      LARKLINE_CONFIG: config,
      API_KEYS: apiKeys.join(","),
      WORKER_CONCURRENCY: "5",
      RUNNER_NAME: "simulated",
      RUNNER_TOOLS: tools,
      ...(kind === "agent-worker" && { CALL_SIGNING_KEY: signingKey }),
      ...(kind === "tool-runner" && { RUNNER_KEY: runnerKeyOf(signingKey, "simulated") }),
    };
    const write = (line: string): void =>
      void this.log.push(`${time.now().toFixed(0)} ${owner.name} ${line.trim()}`);
    const started = within(
      owner,
      async () => await starts[kind](env, { destination: { write }, clock: simulatedClock }),
    );
    const process: Process = { kind, owner, lines: [redis, platform, model], started };
    this.processes.add(process);
    void this.#follow(process, write);
    return process;
  }

  async #follow(process: Process, write: (line: string) => void): Promise<void> {
    const { kind, owner, started } = process;
    try {
      const { port } = await started;
      if (kind === "ingress" && !owner.isDead) Object.assign(this.#ingress, { owner, port });
    } catch (error) {
      if (owner.isDead) return;
      write(`does not start: ${String(error)}`);
      this.end(process);
      time.after(1_000, () => void this.begin(kind)); // as a supervisor does
    }
  }

  /** Kills a process: its connections break, and nothing of it happens any more. */
  end(process: Process): void {
    if (!this.processes.delete(process)) return;
    kill(process.owner);
    for (const line of process.lines) line.close();
    this.#ended.push(...process.lines);
    if (this.#ingress.owner !== process.owner) return;
    this.#inbound.webhook.cut();
    this.#inbound.api.cut();
  }

  /** For some time no process reaches Redis. */
  withoutRedis(ms: number): void {
    const lines = [...this.processes].flatMap(({ lines: [redis] }) => redis ?? []);
    for (const line of lines) line.cut(true);
    time.after(ms, () => {
      for (const line of lines) line.open();
    });
  }

  async close(): Promise<void> {
    for (const process of this.processes) this.end(process);
    for (const line of this.#ended) line.cut(true);
    this.#inbound.webhook.close();
    this.#inbound.api.close();
    await Promise.all([this.feishu.close(), this.model.close()]);
  }
}
