import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import {
  agentBounds,
  agentHash,
  narrowChange,
  resolveConfig,
  type LarklineConfig,
} from "@larkline/process/config";
import type { InboundMessage } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import { systemRandom, systemClock } from "@larkline/protocol/clock";
import { argumentsHashOf, type ToolJob } from "@larkline/protocol/runner";
import { ToolQueues, TurnQueue } from "@larkline/store/queues";
import {
  ApprovalStore,
  AuditLog,
  BudgetStore,
  DeadLetters,
  GrantStore,
  MemoryStore,
  PermissionRules,
  ScheduleStore,
  SessionStore,
} from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import {
  AddedProviders,
  AgentVersions,
  OperatorOrders,
  NameBook,
  RatingStore,
  Pauses,
  Presence,
  RunLog,
  UsageStore,
  type OperatorOrder,
  type OrderResult,
} from "@larkline/store/operations";
import { RunnerDirectory } from "@larkline/store/runners";
import { Metrics, silentLogger } from "@larkline/process/telemetry";
import { inject } from "vitest";
import type { Passwords } from "./config.ts";
import { startConsole } from "./console.ts";

declare module "vitest" {
  interface ProvidedContext {
    redisUrl: string;
  }
}

export const appId = "cli_0123456789abcdef";
export const session = `${appId}.oc_chat`;
export const passwords: Passwords = {
  operator: "operator's password",
  viewer: "viewer's password",
};

/**
 * Everything that other processes have put into Redis, in a namespace of its own. `config`: of the worker that carries
 * out orders.
 */
export function openWorld(config: object = {}) {
  const redis = connectRedis(inject("redisUrl"));
  const namespace = `test-${randomUUID()}`;
  const options = { redis, namespace };
  const queue = { connection: redis, prefix: `{${namespace}}` };
  const tools = new ToolQueues(queue);
  const turns = new TurnQueue(queue);
  const stores = {
    store: new SessionStore({ ...options, stateKey: "0".repeat(64) }),
    letters: new DeadLetters(options),
    grants: new GrantStore({ ...options, grantKeys: ["a".repeat(64)] }),
    rules: new PermissionRules(options),
    schedules: new ScheduleStore(options),
    memories: new MemoryStore(options),
    pauses: new Pauses(options),
    approvals: new ApprovalStore(options),
    audit: new AuditLog(options),
  };
  const settings = settingsOf(config);
  const versions = new AgentVersions({ ...options, stateKey: "0".repeat(64) });
  const providers = new AddedProviders({
    ...options,
    stateKey: "0".repeat(64),
    grantKeys: ["a".repeat(64)],
  });
  const ordered: OperatorOrder[] = [];
  const results: OrderResult[] = [];
  const orders = serveOrders(new OperatorOrders(options), async (order) => {
    ordered.push(order);
    const { by, act } = order;
    const given = results.shift();
    if (given !== undefined) return given;
    if (act.do === "note") {
      const { do: _do, ...record } = act;
      await stores.audit.append({ ...record, userId: by });
    }
    if (act.do === "pause" || act.do === "resume") {
      return { result: await stores.pauses.set(act, act.do === "pause", by) };
    }
    if (act.do === "change_agent") {
      const { agent, base, change, note } = act;
      const file = settings.agents[agent];
      if (
        file === undefined ||
        narrowChange(agentBounds(settings, file), change).problems.length > 0
      ) {
        return { result: "not_possible" };
      }
      const about = { by, atMs: Date.now(), file: agentHash(agentBounds(settings, file)) };
      return {
        result: await versions.add({
          agent,
          base,
          change,
          ...(note === undefined ? {} : { note }),
          ...about,
        }),
      };
    }
    if (act.do === "set_provider") {
      const { provider, sealedKey } = act;
      return { result: await providers.set({ provider, sealedKey, by, atMs: Date.now() }) };
    }
    if (act.do === "remove_provider") return { result: await providers.remove(act.name, by) };
    return { result: "done" };
  });
  return {
    redis,
    namespace,
    versions,
    /** As a worker has them. */
    providers,
    /** What operators have ordered. */
    ordered,
    /** What comes of the next orders. Without one, notes, pauses, versions of agents and servers of models are stored, and others are only taken. */
    results,
    ...stores,
    tools,
    turns,
    budgets: new BudgetStore(options),
    runs: new RunLog(options),
    names: new NameBook(options),
    ratings: new RatingStore(options),
    usage: new UsageStore({ ...options, timeZone: "Asia/Shanghai" }),
    directory: new RunnerDirectory(options),
    presence: new Presence(options),
    close: async () => {
      await orders.close();
      await Promise.all([tools.close(), turns.close()]);
      await closeRedis(redis);
    },
  };
}

/** Takes what operators order, as a worker does. What it does then is a fact of the worker. */
function serveOrders(
  orders: OperatorOrders,
  take: (order: OperatorOrder) => Promise<OrderResult>,
): { close(): Promise<void> } {
  const closing = new AbortController();
  const serve = async (): Promise<void> => {
    while (!closing.signal.aborted) {
      const served = await orders.serve(take);
      if (!served) await delay(10, undefined, { signal: closing.signal }).catch(() => undefined);
    }
  };
  const serving = serve();
  return {
    close: async () => {
      closing.abort();
      await serving;
    },
  };
}

export type World = ReturnType<typeof openWorld>;

export interface TestConsole {
  url: string;
  close(): Promise<void>;
}

function settingsOf(config: object): LarklineConfig {
  const resolved = resolveConfig(config);
  if (!resolved.ok) throw new Error(resolved.error);
  return resolved.value;
}

/** `given: null` starts one without passwords, for everyone on this machine. */
export async function startTestConsole(
  { namespace }: Pick<World, "namespace">,
  given: Passwords | null = passwords,
  { proxies = [], ...config }: { proxies?: readonly string[] } & Record<string, unknown> = {},
): Promise<TestConsole> {
  const { port, close } = await startConsole({
    settings: settingsOf(config),
    config: {
      redisUrl: inject("redisUrl"),
      namespace,
      logLevel: "info",
      configFile: undefined,
      host: "127.0.0.1",
      port: 0,
      passwords: given ?? undefined,
      proxies,
      appId,
      domain: "feishu",
    },
    metrics: new Metrics({ service: "console" }),
    log: silentLogger,
    clock: systemClock,
    random: systemRandom,
  });
  return { url: `http://127.0.0.1:${port}`, close };
}

/** A browser's requests without a browser: with the cookies of a sign-in and its token. */
export interface Client {
  get(path: string): Promise<Response>;
  /** Follows to the page that comes of it. */
  post(path: string, fields?: Record<string, string>): Promise<Response>;
  put(path: string, headers?: Record<string, string>): Promise<Response>;
  readonly cookie: string;
  readonly csrf: string;
}

export async function signIn(
  { url }: Pick<TestConsole, "url">,
  password: string,
  name = "",
): Promise<Client> {
  const body = new URLSearchParams({ name, password });
  const signedIn = await fetch(`${url}/sign-in`, { method: "POST", body, redirect: "manual" });
  const [cookie = ""] = (signedIn.headers.get("set-cookie") ?? "").split(";");
  const headers = { cookie };
  const page = await (await fetch(`${url}/`, { headers })).text();
  const csrf = /name="csrf" value="([^"]+)"/.exec(page)?.[1] ?? "";
  return {
    cookie,
    csrf,
    get: async (path) => await fetch(`${url}${path}`, { headers, redirect: "manual" }),
    post: async (path, fields = {}) => {
      const posted = await fetch(`${url}${path}`, {
        method: "POST",
        headers,
        body: new URLSearchParams({ csrf, ...fields }),
        redirect: "manual",
      });
      const to = posted.headers.get("location");
      if (posted.status !== 303 || to === null || to === "/sign-in") return posted;
      return await fetch(`${url}${to}`, { headers, redirect: "manual" });
    },
    put: async (path, extra = { "x-xsrf-token": csrf }) =>
      await fetch(`${url}${path}`, {
        method: "PUT",
        headers: { ...headers, ...extra },
        redirect: "manual",
      }),
  };
}

export const secretText = "the merger is on Friday";

export function callOf(callId: string, changes: Partial<ToolJob> = {}): ToolJob {
  return {
    v: 1,
    session,
    turnId: `${session}-1`,
    callId,
    name: "deploy",
    arguments: JSON.stringify({ note: secretText }),
    effect: "once",
    attempt: 1,
    actor: { app: appId, userId: "ou_ann", chatId: "oc_chat" },
    envelope: "signed",
    queuedAtMs: Date.now(),
    deadlineMs: Date.now() + 60_000,
    ...changes,
  };
}

export function messageOf(id: string): InboundMessage {
  return {
    v: 1,
    session,
    id,
    app: appId,
    sender: { id: "ou_ann" },
    chatType: "group",
    parts: [{ type: "text", text: secretText }],
    createdAtMs: Date.now(),
    reply: { channel: "none" },
  };
}

/** A question that stands for itself. */
export function questionOf(id: string, changes: Partial<Approval> = {}): Approval {
  const input = { note: secretText };
  return {
    v: 1,
    id,
    kind: "rule",
    session,
    turnId: `${session}-1`,
    callId: "c1",
    app: appId,
    chatId: "oc_chat",
    requester: { id: "ou_ann", name: "Ann" },
    tool: "deploy",
    arguments: input,
    argumentsHash: argumentsHashOf(JSON.stringify(input)),
    secrets: [],
    deciders: { requester: false, people: ["ou_boss"], roles: [], fourEyes: false, count: 1 },
    reason: "",
    risk: "high",
    remember: { tool: "deploy", pattern: "prod" },
    language: "en",
    target: { channel: "none" },
    createdAtMs: Date.now(),
    expiresAtMs: Date.now() + 3_600_000,
    ...changes,
  };
}

/** One answered message, as a worker leaves it. */
export async function answerOne({ store }: Pick<World, "store">): Promise<void> {
  const { wakeGen = 0 } = await store.append(messageOf("om_1"));
  const claim = await store.claim(session, wakeGen, "worker");
  if (claim?.head === undefined) throw new Error("nothing to claim");
  await store.commit({
    session,
    epoch: claim.epoch,
    seq: claim.head.seq,
    history: [
      { role: "user", content: [{ type: "text", text: secretText }] },
      { role: "assistant", content: [{ type: "text", text: "<b>Noted</b>" }] },
    ],
    events: [],
    more: false,
  });
}

export async function auditOf({ audit }: Pick<World, "audit">, kind: string) {
  const records = [];
  for await (const record of audit.export(0, Date.now() + 60_000)) {
    if (record.kind === kind) records.push(record);
  }
  return records;
}
