import { randomBytes } from "node:crypto";
import { gunzipSync } from "node:zlib";
import type { AppOptions } from "./app.ts";
import type { ConsoleOptions } from "./app-console.ts";
import { isJsonObject, parseJsonObject, type JsonObject } from "./json-fields.ts";
import type { OpenRoute } from "./platform.ts";

/** How new apps are registered. Times in seconds. */
export interface RegistrationOptions {
  /** Default 5. */
  intervalSeconds?: number;
  /** Default 600. */
  expiresInSeconds?: number;
}

/** The confirmation page, as a person uses it with the link that was shown. */
export interface RegistrationDesk {
  /** Creates the app with what the link asks for; `lark` says that the person belongs to Lark. */
  confirm(link: string, person?: { brand?: "feishu" | "lark" }): { appId: string };
  refuse(link: string): void;
  /** The next polls of all registrations are told to slow down. */
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

export interface RegistrationParts {
  options: RegistrationOptions;
  now: () => number;
  /** Adds an app to the platform. */
  addApp: (app: AppOptions) => void;
}

export interface Registrations extends RegistrationDesk {
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
        handle: ({ body, host }) => (body.action === "begin" ? begin(state, body, host) : poll(state, body)),
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
  if (body.archetype !== "PersonalAgent" || body.auth_method !== "client_secret") return { error: "invalid_request" };
  const { expiresInSeconds = 600, intervalSeconds = 5 } = state.parts.options;
  const [deviceCode, userCode] = [randomBytes(16).toString("hex"), randomBytes(4).toString("hex")];
  const expiresAt = state.parts.now() + expiresInSeconds * 1000;
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

/** Waiting and refusals are errors with HTTP 400 (RFC 8628); here their `error` alone tells. */
function poll(state: State, body: JsonObject): JsonObject {
  state.polls += 1;
  const registration = state.byDevice.get(String(body.device_code));
  if (body.action !== "poll" || registration === undefined) return { error: "invalid_grant" };
  if (state.slowDowns > 0) {
    state.slowDowns -= 1;
    return { error: "slow_down", error_description: "polling too often" };
  }
  const { state: now } = registration;
  if (typeof now === "object") return toldBrand(registration, now) ?? handOut(registration, now.created, now.brand);
  if (now === "refused") return { error: "access_denied", error_description: "the user refused" };
  if (now === "handed_out" || registration.expiresAt <= state.parts.now()) return { error: "expired_token" };
  return { error: "authorization_pending" };
}

/** A client that began at Feishu is first told that the person belongs to Lark, and has to ask there. */
function toldBrand(registration: Registration, created: { brand: "feishu" | "lark" }): JsonObject | undefined {
  if (created.brand === "feishu" || registration.toldBrand === true) return undefined;
  registration.toldBrand = true;
  return { error: "authorization_pending", user_info: { tenant_brand: created.brand } };
}

/** The secret is told once. */
function handOut(registration: Registration, created: AppOptions, brand: "feishu" | "lark"): JsonObject {
  registration.state = "handed_out";
  const userInfo = { open_id: `ou_${randomBytes(16).toString("hex")}`, tenant_brand: brand };
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
    appId: `cli_${randomBytes(8).toString("hex")}`,
    appSecret: randomBytes(16).toString("hex"),
    name: link.searchParams.get("name") ?? "App",
    ...askedFor(link),
  };
  state.parts.addApp(created);
  registration.state = { created, brand };
  return { appId: created.appId };
}
