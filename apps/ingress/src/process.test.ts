import { spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, inject, it, vi } from "vitest";
import type { RunningApp } from "@larkline/process/app";
import { turnIdOf } from "@larkline/protocol";
import type { EngineEvent } from "@larkline/protocol/event";
import { SessionStore } from "@larkline/store";
import { closeRedis, connectRedis, type RedisConnection } from "@larkline/store/redis";
import { codeCache, freePort, startRedis } from "@larkline/testkit";
import { startIngressApp } from "./app.ts";
import { doneEvent, openStream, postChat } from "./ingress.fixture.ts";

declare module "vitest" {
  interface ProvidedContext {
    redisUrl: string;
  }
}

const apps: RunningApp[] = [];
const connections: RedisConnection[] = [];

afterEach(async () => {
  await Promise.all(apps.splice(0).map(async (app) => await app.close()));
  await Promise.all(connections.splice(0).map((redis) => closeRedis(redis)));
});

interface Started {
  app: RunningApp;
  url: string;
  /** What it has logged. */
  output(): string;
}

/** Ingress as a deployment starts it, in this process. */
async function started(env: Record<string, string>): Promise<Started> {
  let output = "";
  const destination = { write: (line: string) => void (output += line) };
  const app = await startIngressApp({ HOST: "127.0.0.1", PORT: "0", ...env }, { destination });
  apps.push(app);
  return { app, url: `http://127.0.0.1:${app.port}`, output: () => output };
}

async function untilReady({ url }: Started, status = 200): Promise<void> {
  await vi.waitFor(async () => expect((await fetch(`${url}/ready`)).status).toBe(status), {
    timeout: 60_000,
    interval: 20,
  });
}

function storeOf(redisUrl: string, namespace: string) {
  const redis = connectRedis(redisUrl);
  connections.push(redis);
  return new SessionStore({ redis, namespace, stateKey: "0".repeat(64) });
}

describe("ingress with its environment", () => {
  it("any replica streams any session, also the rest of a run whose replica was stopped", async () => {
    const redisUrl = inject("redisUrl");
    const namespace = `test-${randomUUID()}`;
    const env = { REDIS_URL: redisUrl, REDIS_NAMESPACE: namespace };
    const [one, two] = await Promise.all([started(env), started(env)]);
    const first = await postChat(one, { message: "你好", session_id: "s" });
    await first.until(/user_message/);

    const store = storeOf(redisUrl, namespace);
    const session = "api.s";
    const { epoch = "", head } = (await store.claim(session, 1, "test")) ?? {};
    expect(head?.message.parts).toEqual([{ type: "text", text: "你好" }]);
    const batch = (event: EngineEvent) => ({
      session,
      epoch,
      events: [{ runId: turnIdOf(session, 1), event }],
    });
    await store.emit(batch({ type: "text_delta", text: "一" }));
    await first.until(/一/);

    const stopped = one.app.close();
    await first.end();
    expect(first.text()).toMatch(/: shutdown\n\n$/);
    const rest = await openStream(`${two.url}/chat/s/events`, {
      headers: { "last-event-id": "1" },
    });
    await store.emit(batch({ type: "text_delta", text: "二" }));
    await store.commit({ ...batch(doneEvent("一二")), history: [], seq: 1, more: false });
    await rest.end();
    expect(rest.frames()).toMatchObject([
      { type: "assistant", content: "二", seq: 2 },
      { type: "done", final: "一二", seq: 3 },
    ]);
    await stopped;
    // The stop of a replica is no reason to cancel a run.
    expect((await store.history(session)).length).toBe(0);
    expect((await store.summary(session)).state).toBe("idle");
  });

  it("has taken messages of its own when it is ready, which leave nothing but keys that expire", async () => {
    const redisUrl = inject("redisUrl");
    const namespace = `test-${randomUUID()}`;
    const ingress = await started({ REDIS_URL: redisUrl, REDIS_NAMESPACE: namespace });
    await vi.waitFor(() => expect(ingress.output()).toContain("warmed up"), { timeout: 60_000 });
    const redis = connectRedis(redisUrl);
    connections.push(redis);
    const ofWarmUp = (key: string): boolean => key.startsWith(`{${namespace}:warm-up:`);
    // A process that stood still is ready before it has sent itself all of its messages.
    const keys = await vi.waitFor(
      async () => {
        const stored = await redis.keys(`*${namespace}*`);
        expect(stored.filter(ofWarmUp).length).toBeGreaterThan(100);
        expect(stored).toContain(`{${namespace}}:instances`);
        return stored;
      },
      { timeout: 60_000 },
    );
    const own = keys.filter(ofWarmUp);
    // The settings of the queue are there as soon as it is open.
    const others = keys.filter((key) => !own.includes(key) && key !== `{${namespace}}:turns:meta`);
    expect(others).toEqual([`{${namespace}}:instances`]);
    for (const key of own) {
      const leftMs = await redis.pttl(key);
      expect(leftMs, key).toBeGreaterThan(0);
      expect(leftMs, key).toBeLessThanOrEqual(60_000);
    }
    const counted = (await (await fetch(`${ingress.url}/metrics`)).text())
      .split("\n")
      .filter((line) => /^larkline_(?:ingress|feishu)_\w+/.test(line) && !line.endsWith(" 0"));
    expect(counted).toEqual([]);
  });

  it("a client that leaves cancels its run through Redis, when its request said so", async () => {
    const redisUrl = inject("redisUrl");
    const namespace = `test-${randomUUID()}`;
    const ingress = await started({ REDIS_URL: redisUrl, REDIS_NAMESPACE: namespace });
    const stream = await postChat(ingress, {
      message: "hi",
      session_id: "s",
      on_disconnect: "cancel",
    });
    await stream.until(/user_message/);
    const store = storeOf(redisUrl, namespace);
    expect(await store.claim("api.s", 1, "test")).toBeDefined();
    stream.leave();
    await vi.waitFor(
      async () => {
        const again = await store.claim("api.s", 1, "test");
        expect(again?.control).toMatchObject([{ type: "cancel", turnId: "api.s-1" }]);
      },
      { timeout: 60_000 },
    );
  });

  it("SA-27: before Redis has ever answered there is one error frame", async () => {
    const ingress = await started({ REDIS_URL: `redis://127.0.0.1:${await freePort()}` });
    const early = await postChat(ingress, { message: "hi" });
    await early.end();
    expect(early.text()).toBe('data: {"type":"error","message":"Agent 未初始化"}\n\n');
  });

  it("SA-27: while Redis is silent or away it says what is known, and serves again when it is back", async () => {
    const redis = await startRedis();
    const ingress = await started({ REDIS_URL: redis.url });
    redis.process.kill("SIGSTOP");
    const slow = await postChat(ingress, { message: "hi", session_id: "s" });
    redis.process.kill("SIGCONT"); // only now does it read what has been written to it
    await slow.end();
    expect(slow.frames()).toMatchObject([{ type: "error", code: "uncertain", session_id: "s" }]);
    const [told] = slow.frames();
    const again = {
      message: "hi",
      session_id: "s",
      message_id: told?.type === "error" ? told.message_id : undefined,
    };
    const attached = await postChat(ingress, again);
    await attached.until(/"run_id":"api.s-1"/);
    attached.leave();
    redis.process.kill("SIGKILL");
    await once(redis.process, "exit");
    await untilReady(ingress, 503);
    const gone = await postChat(ingress, { message: "hi" });
    expect([gone.status, gone.headers.get("retry-after")]).toEqual([503, "1"]);
    expect((await fetch(`${ingress.url}/health`)).status).toBe(200);
    const restarted = await startRedis({ port: redis.port });
    await untilReady(ingress);
    const back = await postChat(ingress, { message: "hi" });
    await back.until(/user_message/);
    back.leave();
    await ingress.app.close();
    await restarted.stop();
  });

  it("does not start where its port is taken, and says so in one line", async () => {
    const { app } = await started({ REDIS_URL: inject("redisUrl") });
    const second = started({
      REDIS_URL: inject("redisUrl"),
      PORT: String(app.port),
      LOG_LEVEL: "silent",
    });
    await expect(second).rejects.toThrow(new RegExp(`^ingress cannot start: .*${app.port}.*$`));
  });
});

it("the process of ingress ends with every problem of its configuration, a line each", async () => {
  const program = fileURLToPath(new URL("main.ts", import.meta.url));
  const wrong = { REDIS_URL: "nonsense", FEISHU_APP_SECRET: "hunter2", PORT: "x" };
  const env = { PATH: process.env["PATH"] ?? "", NODE_COMPILE_CACHE: codeCache, ...wrong };
  const { status, stdout, stderr } = spawnSync(process.execPath, [program], {
    env,
    encoding: "utf8",
  });
  expect(status).toBe(1);
  expect(`${stdout}${stderr}`.trim().split("\n")).toHaveLength(3);
  expect(`${stdout}${stderr}`).not.toContain("hunter2");
});
