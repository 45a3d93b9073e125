import { gzipSync } from "node:zlib";
import { parserOf } from "@larkline/protocol";
import { deadline, pause, systemClock, type Clock } from "@larkline/protocol/clock";
import { Type } from "@larkline/protocol/type";
import { objectOf, parsedObject, textField, type JsonObject } from "../transport/api-call.ts";
import { baseUrlOf, type FeishuDomain } from "../transport/rate-limiter.ts";
import { appManifest } from "./app-manifest.ts";

/** Where a person confirms the new app, and for how long. */
export interface RegistrationLink {
  url: string;
  expiresInMs: number;
}

/** How a registration ended. `reason` of `failed` holds nothing secret. */
export type Registration =
  | { kind: "created"; appId: string; appSecret: string; domain: FeishuDomain }
  | { kind: "denied" }
  | { kind: "expired" }
  | { kind: "cancelled" }
  | { kind: "failed"; reason: string };

export interface RegisterAppOptions {
  /** A base URL (a simulator) serves the registration itself; both clouds begin at Feishu's. */
  domain: FeishuDomain;
  /** Name that the confirmation page proposes. */
  name: string;
  /** Called once, as soon as the person can confirm. */
  onLink: (link: RegistrationLink) => void;
  signal: AbortSignal;
  /** Deadline of one request in ms, 10 s by default. */
  timeoutMs?: number;
  /** By how much a poll too many slows the polling down; 5 s by default ("Device Authorization Grant"). */
  slowDownMs?: number;
  clock?: Clock;
}

/**
 * Creates an app by a link that a person opens (or scans) and confirms, with everything of the
 * manifest asked for: the platform's device flow ("One-click app creation"), with a deadline on
 * every request. The platform's SDK has the same flow, but no way to point it elsewhere.
 */
export async function registerApp(options: RegisterAppOptions): Promise<Registration> {
  const { signal, timeoutMs = 10_000, clock = systemClock } = options;
  const fields = {
    action: "begin",
    archetype: "PersonalAgent",
    auth_method: "client_secret",
    request_user_info: "open_id",
  };
  const answer = await ask({
    base: hostsOf(options.domain).first,
    fields,
    signal,
    clock,
    timeoutMs,
  });
  if (signal.aborted) return { kind: "cancelled" };
  const begun = parseBegin(answer);
  if (!begun.ok) return { kind: "failed", reason: reasonOf(answer) };
  const {
    device_code: deviceCode,
    verification_uri_complete: address,
    expires_in,
    interval,
  } = begun.value;
  const url = linkOf(address, options.name);
  if (url === undefined) {
    return { kind: "failed", reason: "the link to confirm with is no web address" };
  }
  const expiresInMs = (expires_in ?? 600) * 1_000;
  const expired = deadline(clock, Math.max(1, expiresInMs));
  options.onLink({ url, expiresInMs });
  return await poll(
    { deviceCode, intervalMs: (interval ?? 5) * 1_000, expired, clock, timeoutMs },
    options,
  );
}

const accounts = { feishu: "https://accounts.feishu.cn", lark: "https://accounts.larksuite.com" };
const path = "/oauth/v1/app/registration";
const source = "node-sdk/larkline";

const parseBegin = parserOf(
  Type.Object({
    device_code: Type.String({ minLength: 1 }),
    verification_uri_complete: Type.String({ minLength: 1 }),
    expires_in: Type.Optional(Type.Number({ minimum: 0 })),
    interval: Type.Optional(Type.Number({ minimum: 0 })),
  }),
);

interface Polling {
  deviceCode: string;
  intervalMs: number;
  expired: AbortSignal;
  clock: Clock;
  timeoutMs: number;
}

async function poll(polling: Polling, options: RegisterAppOptions): Promise<Registration> {
  const hosts = hostsOf(options.domain);
  const signal = AbortSignal.any([options.signal, polling.expired]);
  const ended = (): Registration =>
    options.signal.aborted ? { kind: "cancelled" } : { kind: "expired" };
  let onLark = false;
  let { intervalMs } = polling;
  while (!signal.aborted) {
    const fields = { action: "poll", device_code: polling.deviceCode };
    const base = onLark ? hosts.lark : hosts.first;
    const answer = await ask({
      base,
      fields,
      signal,
      clock: polling.clock,
      timeoutMs: polling.timeoutMs,
    });
    const step = stepOf(answer, { onLark, domain: options.domain });
    // An app that was created while we gave up is returned too: its secret is never shown again.
    if (typeof step === "object") return step;
    if (step === "slow_down") intervalMs += options.slowDownMs ?? 5_000;
    if (step === "go_to_lark") onLark = true;
    else await pause(polling.clock, intervalMs, signal);
  }
  return ended();
}

/** Base URLs of the registration: the first one, and the one that continues it for an app of Lark. */
function hostsOf(domain: FeishuDomain): { first: string; lark: string } {
  if (domain === "feishu" || domain === "lark") {
    return { first: accounts.feishu, lark: accounts.lark };
  }
  const base = baseUrlOf(domain);
  return { first: base, lark: base };
}

/** Permissions, events and callbacks as the confirmation page reads them: JSON, gzip, base64url. */
function encodedAddons(): string {
  const wanted = appManifest.scopes.filter(({ level }) => level !== "optional");
  const addons = {
    scopes: { tenant: wanted.map(({ name }) => name) },
    events: {
      items: {
        tenant: appManifest.events
          .filter(({ level }) => level !== "optional")
          .map(({ name }) => name),
      },
    },
    callbacks: { items: appManifest.callbacks.map(({ name }) => name) },
  };
  return gzipSync(JSON.stringify(addons)).toString("base64url");
}

/** Undefined when the server sent no address that a person could open. */
function linkOf(address: string, name: string): string | undefined {
  if (!URL.canParse(address)) return undefined;
  const url = new URL(address);
  if (url.protocol !== "https:" && url.protocol !== "http:") return undefined;
  for (const [key, value] of Object.entries({
    from: "sdk",
    tp: "sdk",
    source,
    name,
    addons: encodedAddons(),
  })) {
    url.searchParams.set(key, value);
  }
  return url.href;
}

interface Exchange {
  base: string;
  fields: Record<string, string>;
  signal: AbortSignal;
  clock: Clock;
  timeoutMs: number;
}

/** The answer, whatever its HTTP status (waiting is a 400); undefined when there is none to read. */
async function ask({
  base,
  fields,
  signal,
  clock,
  timeoutMs,
}: Exchange): Promise<JsonObject | undefined> {
  try {
    const response = await fetch(`${base}${path}`, {
      method: "POST",
      body: new URLSearchParams(fields),
      signal: deadline(clock, timeoutMs, signal),
      redirect: "error",
    });
    return parsedObject(await response.text());
  } catch {
    return undefined;
  }
}

/** An error code of the flow, made harmless to show. */
function reasonOf(answer: JsonObject | undefined): string {
  if (answer === undefined) return "no answer";
  const text = textField(answer, "error") || textField(answer, "msg") || "unexpected answer";
  return text.replaceAll(/[^\w .:-]/g, "").slice(0, 100);
}

type Step = Registration | "wait" | "slow_down" | "go_to_lark";

function stepOf(
  answer: JsonObject | undefined,
  place: { onLark: boolean; domain: FeishuDomain },
): Step {
  // A server that does not answer now may answer the next poll.
  if (answer === undefined) return "wait";
  const isLark = textField(objectOf(answer["user_info"]), "tenant_brand") === "lark";
  const [appId, appSecret] = [textField(answer, "client_id"), textField(answer, "client_secret")];
  if (appId !== "" && appSecret !== "") {
    const cloud = isLark || place.onLark ? "lark" : "feishu";
    const domain = place.domain === "feishu" || place.domain === "lark" ? cloud : place.domain;
    return { kind: "created", appId, appSecret, domain };
  }
  if (isLark && !place.onLark) return "go_to_lark";
  const error = textField(answer, "error");
  if (error === "slow_down") return "slow_down";
  if (error === "access_denied") return { kind: "denied" };
  if (error === "expired_token") return { kind: "expired" };
  return error === "" || error === "authorization_pending"
    ? "wait"
    : { kind: "failed", reason: reasonOf(answer) };
}
