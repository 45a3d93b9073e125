import { timingSafeEqual, createHash } from "node:crypto";
import { gunzipSync } from "node:zlib";
import { type Clock, systemRandom } from "@larkline/protocol/clock";
import {
  newId,
  isAppId,
  type OpenRoute,
  type JsonObject,
  randomHex,
  isJsonObject,
  parseJsonObject,
  PlatformError,
} from "./open-api.ts";

export type Transport = "webhook" | "websocket" | "auto";
/**
 * Which group messages an app is subscribed to: all of people, those of people that mention it, or also those of
 * other bots that mention it.
 */
export type GroupScope = "all" | "mentioned" | "mentioned_with_bots";

/** A bot application as its developer console describes it. */
export interface AppOptions {
  /** `cli_` and 16 hex digits. */
  appId: string;
  appSecret: string;
  /** With a key, webhook bodies are encrypted and signed. */
  encryptKey?: string;
  verificationToken?: string;
  webhookUrl?: string;
  name?: string;
  /** Of its bot. Default: a new one. */
  openId?: string;
  /** Default: one that all apps share. */
  tenantKey?: string;
  /** Default `auto`: a live long connection wins, else the webhook. */
  transport?: Transport;
  /** Default `all`. */
  groupScope?: GroupScope;
  /** Granted scopes, subscribed events and callbacks; default: all that the simulated console knows. */
  scopes?: readonly string[];
  events?: readonly string[];
  callbacks?: readonly string[];
}

/** The running state of an app. */
export interface SimApp {
  readonly appId: string;
  readonly appSecret: string;
  readonly encryptKey: string | undefined;
  readonly verificationToken: string;
  readonly name: string;
  readonly openId: string;
  readonly tenantKey: string;
  groupScope: GroupScope;
  webhookUrl: string | undefined;
  transport: Transport;
}

export function createApps(options: readonly AppOptions[]): Map<string, SimApp> {
  const tenantKey = newId("").slice(0, 16);
  const apps = new Map<string, SimApp>();
  for (const app of options) {
    if (!isAppId(app.appId)) {
      throw new Error(`App id ${app.appId} is not of the form cli_ and 16 hex digits`);
    }
    if (apps.has(app.appId)) throw new Error(`App ${app.appId} is configured twice`);
    apps.set(app.appId, simulatedApp(app, tenantKey));
  }
  return apps;
}

/** The state that an app begins with. */
export function simulatedApp(app: AppOptions, tenantKey: string): SimApp {
  return {
    appId: app.appId,
    appSecret: app.appSecret,
    encryptKey: app.encryptKey || undefined,
    verificationToken: app.verificationToken ?? "",
    name: app.name ?? "Larkline",
    openId: app.openId ?? newId("ou_"),
    tenantKey: app.tenantKey ?? tenantKey,
    groupScope: app.groupScope ?? "all",
    webhookUrl: app.webhookUrl,
    transport: app.transport ?? "auto",
  };
}

/** What the developer console holds about an app besides its credentials. */
export interface ConsoleEntry {
  scopes: ReadonlySet<string>;
  events: readonly string[];
  callbacks: readonly string[];
}

/** Names that the simulated console knows; others are dropped from what an app asks for. */
const catalogue: ConsoleEntry = {
  scopes: new Set([
    "admin:app.info:readonly",
    "application:app_slash_command:read",
    "application:app_slash_command:write",
    "application:application:self_manage",
    "cardkit:card:write",
    "contact:group:readonly",
    "contact:user.base:readonly",
    "contact:user.basic_profile:readonly",
    "im:chat",
    "im:chat:readonly",
    "im:message",
    "im:message:readonly",
    "im:message:send_as_bot",
    "im:message.group_at_msg:readonly",
    "im:message.group_at_msg.include_bot:readonly",
    "im:message.group_msg",
    "im:message.p2p_msg:readonly",
    "im:message.reactions:write_only",
    "im:resource",
    "im:resource:upload",
  ]),
  events: [
    "application.bot.menu_v6",
    "approval_instance",
    "approval_task",
    "auth.user_access_token.revoked_v4",
    "calendar.calendar.event.changed_v4",
    "contact.user.deleted_v3",
    "im.chat.access_event.bot_p2p_chat_entered_v1",
    "im.chat.disbanded_v1",
    "im.chat.member.bot.added_v1",
    "im.chat.member.bot.deleted_v1",
    "im.chat.member.user.added_v1",
    "im.chat.member.user.deleted_v1",
    "im.chat.updated_v1",
    "im.message.message_read_v1",
    "im.message.reaction.created_v1",
    "im.message.reaction.deleted_v1",
    "im.message.recalled_v1",
    "im.message.receive_v1",
    "mail.user_mailbox.event.message_received_v1",
    "minutes.minute.generated_v1",
    "p2p_chat_create",
    "task.task.update_user_access_v2",
    "vc.meeting.participant_meeting_ended_v1",
  ],
  callbacks: ["card.action.trigger", "url.preview.get"],
};

/** The parts of a configuration that are set; the rest is as wide as the catalogue. */
export type ConsoleOptions = Pick<AppOptions, "scopes" | "events" | "callbacks">;

export interface AppConsole {
  entry(appId: string): ConsoleEntry;
  /** Replaces the app's configuration; unknown names are dropped. */
  set(appId: string, options: ConsoleOptions): void;
}

function known(chosen: readonly string[] | undefined, all: readonly string[]): string[] {
  return chosen === undefined ? [...all] : chosen.filter((name) => all.includes(name));
}

/** The console of all apps. */
export function createAppConsole(apps: readonly AppOptions[]): AppConsole {
  const entries = new Map<string, ConsoleEntry>();
  const set = (appId: string, { scopes, events, callbacks }: ConsoleOptions): void => {
    entries.set(appId, {
      scopes: new Set(known(scopes, [...catalogue.scopes])),
      events: known(events, catalogue.events),
      callbacks: known(callbacks, catalogue.callbacks),
    });
  };
  for (const app of apps) set(app.appId, app);
  return { entry: (appId) => entries.get(appId) ?? catalogue, set };
}

/** How new apps are registered. Times in seconds. */
export interface RegistrationOptions {
  /** Default 5. */
  intervalSeconds?: number;
  /** Default 600. */
  expiresInSeconds?: number;
}

/** The confirmation page, as a person uses it with the link that was shown. */
export interface RegistrationControls {
  /** Creates the app with what the link asks for; `lark` says that the person belongs to Lark. */
  confirm(link: string, person?: { brand?: "feishu" | "lark" }): { appId: string };
  refuse(link: string): void;
  /** Answers the next polls of all registrations with `slow_down`. */
  demandSlowDown(times: number): void;
  /** Polls so far. */
  readonly polls: number;
}

interface Registration {
  userCode: string;
  expiresAt: number;
  toldBrand?: true;
  state: "waiting" | "refused" | "handed_out" | { created: AppOptions; brand: "feishu" | "lark" };
}

interface RegistrationParts {
  options: RegistrationOptions;
  clock: Clock;
  /** Adds an app to the platform. */
  addApp: (app: AppOptions) => void;
}

export interface Registrations extends RegistrationControls {
  routes: OpenRoute[];
}

interface State {
  parts: RegistrationParts;
  byDevice: Map<string, Registration>;
  slowDowns: number;
  polls: number;
}

/** `POST /oauth/v1/app/registration`: the device flow that creates apps. */
export function createRegistrations(parts: RegistrationParts): Registrations {
  const state: State = { parts, byDevice: new Map(), slowDowns: 0, polls: 0 };
  return {
    routes: [
      {
        method: "POST",
        path: "/oauth/v1/app/registration",
        handle: ({ body, host }) =>
          body.action === "begin" ? begin(state, body, host) : poll(state, body),
      },
    ],
    confirm: (link, person) => confirm(state, new URL(link), person?.brand ?? "feishu"),
    refuse: (link) => {
      waiting(state, new URL(link)).state = "refused";
    },
    demandSlowDown: (times) => {
      state.slowDowns = times;
    },
    get polls() {
      return state.polls;
    },
  };
}

function begin(state: State, body: JsonObject, host: string): JsonObject {
  if (body.archetype !== "PersonalAgent" || body.auth_method !== "client_secret") {
    return { error: "invalid_request" };
  }
  const { expiresInSeconds = 600, intervalSeconds = 5 } = state.parts.options;
  const [deviceCode, userCode] = [randomHex(32), randomHex(8)];
  const expiresAt = state.parts.clock.now() + expiresInSeconds * 1000;
  state.byDevice.set(deviceCode, { userCode, expiresAt, state: "waiting" });
  const page = `http://${host}/page/launcher`;
  return {
    device_code: deviceCode,
    user_code: userCode,
    verification_uri: page,
    verification_uri_complete: `${page}?user_code=${userCode}`,
    expires_in: expiresInSeconds,
    interval: intervalSeconds,
  };
}

/** Waiting and refusals are errors with HTTP 400 (RFC 8628); here only their `error` says so. */
function poll(state: State, body: JsonObject): JsonObject {
  state.polls += 1;
  const registration = state.byDevice.get(String(body.device_code));
  if (body.action !== "poll" || registration === undefined) return { error: "invalid_grant" };
  if (state.slowDowns > 0) {
    state.slowDowns -= 1;
    return { error: "slow_down", error_description: "polling too often" };
  }
  const { state: now } = registration;
  if (typeof now === "object") {
    return toldBrand(registration, now) ?? handOut(registration, now.created, now.brand);
  }
  if (now === "refused") return { error: "access_denied", error_description: "the user refused" };
  if (now === "handed_out" || registration.expiresAt <= state.parts.clock.now()) {
    return { error: "expired_token" };
  }
  return { error: "authorization_pending" };
}

/** A client that began at Feishu first learns that the person belongs to Lark, and has to ask there. */
function toldBrand(
  registration: Registration,
  created: { brand: "feishu" | "lark" },
): JsonObject | undefined {
  if (created.brand === "feishu" || registration.toldBrand === true) return undefined;
  registration.toldBrand = true;
  return { error: "authorization_pending", user_info: { tenant_brand: created.brand } };
}

/** The secret is returned once. */
function handOut(
  registration: Registration,
  created: AppOptions,
  brand: "feishu" | "lark",
): JsonObject {
  registration.state = "handed_out";
  const userInfo = { open_id: `ou_${randomHex(32)}`, tenant_brand: brand };
  return { client_id: created.appId, client_secret: created.appSecret, user_info: userInfo };
}

function waiting(state: State, link: URL): Registration {
  const userCode = link.searchParams.get("user_code");
  const found = [...state.byDevice.values()].find((one) => one.userCode === userCode);
  if (found?.state !== "waiting") throw new Error("The link belongs to no registration that waits");
  return found;
}

function names(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((name) => typeof name === "string") : [];
}

function objectIn(value: unknown, key: string): JsonObject {
  const inner = isJsonObject(value) ? value[key] : undefined;
  return isJsonObject(inner) ? inner : {};
}

/** Throws when the parameter is not gzip of JSON in base64url. */
function askedFor(link: URL): ConsoleOptions {
  const packed = Buffer.from(link.searchParams.get("addons") ?? "", "base64url");
  const addons = parseJsonObject(gunzipSync(packed).toString("utf8"));
  if (addons === undefined) throw new Error("addons are not a JSON object");
  return {
    scopes: names(objectIn(addons, "scopes").tenant),
    events: names(objectIn(objectIn(addons, "events"), "items").tenant),
    callbacks: names(objectIn(addons, "callbacks").items),
  };
}

function confirm(state: State, link: URL, brand: "feishu" | "lark"): { appId: string } {
  const registration = waiting(state, link);
  const created: AppOptions = {
    appId: `cli_${randomHex(16)}`,
    appSecret: randomHex(32),
    name: link.searchParams.get("name") ?? "App",
    ...askedFor(link),
  };
  state.parts.addApp(created);
  registration.state = { created, brand };
  return { appId: created.appId };
}

const lifetimeMs = 7_200_000;
const renewalMs = 1_800_000;

interface IssuedToken {
  token: string;
  expireSeconds: number;
}

/** Tenant access tokens (custom app guide, "tenant_access_token"). */
export interface TokenStore {
  /** The current token while it has 30 minutes left, else a new one; both stay valid to their end. */
  issue(app: SimApp): IssuedToken;
  /** The app that the bearer token belongs to; refuses with 99991661, 99991671 or 99991663. */
  authenticate(authorization: string | undefined): string;
  /** Makes every token (of one app) invalid at once. */
  expire(appId?: string): void;
}

export function createTokenStore(clock: Clock): TokenStore {
  const owners = new Map<string, { appId: string; expiresAt: number }>();
  const current = new Map<string, string>();
  return {
    issue(app) {
      const existing = current.get(app.appId);
      const left =
        existing === undefined ? 0 : (owners.get(existing)?.expiresAt ?? 0) - clock.now();
      if (existing !== undefined && left >= renewalMs) return issued(existing, left);
      const token = `t-${systemRandom.id()}`;
      owners.set(token, { appId: app.appId, expiresAt: clock.now() + lifetimeMs });
      current.set(app.appId, token);
      return issued(token, lifetimeMs);
    },
    authenticate(authorization) {
      const token = /^Bearer (.+)$/i.exec(authorization ?? "")?.[1];
      if (token === undefined) {
        throw new PlatformError(99991661, "Missing access token for authorization.");
      }
      if (!/^[tu]-/.test(token)) {
        throw new PlatformError(99991671, "Invalid access token: it must start with t- or u-.");
      }
      const owner = owners.get(token);
      if (owner === undefined || owner.expiresAt <= clock.now()) {
        throw new PlatformError(
          99991663,
          "Invalid access token for authorization. Please make a test with a new one.",
        );
      }
      return owner.appId;
    },
    expire(appId) {
      for (const [token, owner] of owners) {
        if (appId === undefined || owner.appId === appId) owners.delete(token);
      }
      if (appId === undefined) current.clear();
      else current.delete(appId);
    },
  };
}

/** Compares secrets in constant time whatever their lengths. */
export function sameSecret(given: unknown, expected: string): boolean {
  if (typeof given !== "string") return false;
  return timingSafeEqual(sha256(given), sha256(expected));
}

function issued(token: string, leftMs: number): IssuedToken {
  return { token, expireSeconds: Math.floor(leftMs / 1000) };
}

function sha256(value: string): Buffer {
  return createHash("sha256").update(value).digest();
}
