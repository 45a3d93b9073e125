import { createHash } from "node:crypto";
import { type Clock, systemRandom } from "@larkline/protocol/clock";
import { type SimApp, sameSecret } from "./apps.ts";
import { type DeliveryReport, type OutgoingEvent, envelope } from "./delivery.ts";
import type { SimUser, Directory } from "./directory.ts";
import { type OpenRoute, PlatformError, type JsonObject, randomHex, success } from "./open-api.ts";

// Consent of people: device flow and code flow, the tokens of people, and how they end.

/** Why a grant ended, as the event `auth.user_access_token.revoked_v4` names it. */
export type RevokeReason =
  | "user"
  | "administrator"
  | "security"
  | "restriction"
  | "left"
  | "app_withdrawn";

/** A consent page that waits for a person. */
export interface WaitingConsent {
  link: string;
  appId: string;
  appName: string;
  scopes: readonly string[];
  /** Epoch ms. */
  expiresAt: number;
}

/** The consent page as a person uses it, and what people and administrators do to grants. */
export interface GrantControls {
  /** Pages of device flows that no person has answered. */
  readonly waiting: readonly WaitingConsent[];
  /**
   * What a link asks for: one of {@link waiting}, or one of the code flow, which may be opened again; undefined: nothing
   * of an app that is known.
   */
  asked(link: string): Omit<WaitingConsent, "expiresAt"> | undefined;
  /**
   * A person agrees to what the link asks, or to the named scopes of it. For a link of the code flow returns the
   * address to which the browser is sent.
   */
  consent(link: string, by: string, scopes?: readonly string[]): { redirect?: string };
  refuse(link: string): { redirect?: string };
  /** Ends all tokens of a person for an app; the app gets the event. */
  revoke(appId: string, openId: string, reason: RevokeReason): Promise<DeliveryReport>;
  /** The person leaves the company: all their tokens end, and the apps get `contact.user.deleted_v3`. */
  leave(openId: string): Promise<void>;
  /** Of later calls of `user_info`: 20021 and 20022. */
  setPersonState(openId: string, state: "active" | "resigned" | "frozen"): void;
  /** The app's security setting: off, refreshes answer 20074. */
  setRefresh(appId: string, state: "on" | "off"): void;
  /** How long access tokens of later answers live, in seconds; default 7,200. */
  setAccessSeconds(seconds: number): void;
  /** The access tokens of a person are over before their time: calls with them answer 99991677. */
  expireAccess(openId: string): void;
  /** User scopes that the app has; absent: all. Others are left off the page and the token without a word. */
  setUserScopes(appId: string, scopes: readonly string[] | undefined): void;
  /** A request for both scopes in this order is refused with 403 and a page in place of JSON. */
  forbidPair(first: string, second: string): void;
  /** Calls as this person answer 21000 with the link; undefined: no more. */
  demandChallenge(openId: string, link: string | undefined): void;
  /** What the person has granted the app so far. */
  grantedTo(appId: string, openId: string): readonly string[];
}

/** A person whose token a call carries. */
export interface TokenOwner {
  app: SimApp;
  person: SimUser;
  scopes: ReadonlySet<string>;
}

export interface Grants extends GrantControls {
  readonly routes: OpenRoute[];
  /** Whose token it is; refuses with 99991668, 99991677 or 21000. */
  authenticate(token: string): TokenOwner;
  /** Those of {@link GrantControls.setUserScopes}; none where the app has all. */
  userScopesOf(appId: string): readonly string[];
}

/** Lifetimes in seconds ("Get user_access_token", "Refresh user_access_token"; device flow: clients' defaults). */
const lives = {
  device: 240,
  code: 300,
  access: 7_200,
  refresh: 604_800,
  consent: 365 * 86_400,
} as const;
const intervalSeconds = 5;
const maxScopes = 50;

interface DeviceFlow {
  app: SimApp;
  userCode: string;
  link: string;
  scopes: readonly string[];
  expiresAt: number;
  polledAt: number;
  state: "waiting" | "refused" | "used" | { openId: string };
}

interface Code {
  appId: string;
  openId: string;
  redirectUri: string;
  challenge: string | undefined;
  expiresAt: number;
  used: boolean;
}

interface Token {
  appId: string;
  openId: string;
  scopes: ReadonlySet<string>;
  expiresAt: number;
}

interface RefreshToken extends Token {
  state: "good" | "used" | "revoked";
}

interface Parts {
  apps: ReadonlyMap<string, SimApp>;
  directory: Directory;
  publish: (event: OutgoingEvent) => Promise<DeliveryReport>;
  clock: Clock;
}

/** A refusal in the form of OAuth. */
function refusal(code: number, error: string, description: string, status = 400): PlatformError {
  return new PlatformError(code, description, {
    status,
    fields: { error, error_description: description },
  });
}

export class GrantService implements Grants {
  readonly routes: OpenRoute[];
  readonly #parts: Parts;
  readonly #flows = new Map<string, DeviceFlow>();
  readonly #codes = new Map<string, Code>();
  readonly #access = new Map<string, Token>();
  readonly #refresh = new Map<string, RefreshToken>();
  /** By app and person: everything ever granted, and when the latest consent was. */
  readonly #granted = new Map<string, { scopes: Set<string>; at: number }>();
  readonly #personStates = new Map<string, "active" | "resigned" | "frozen">();
  readonly #refreshOff = new Set<string>();
  #accessSeconds: number = lives.access;
  readonly #userScopes = new Map<string, ReadonlySet<string>>();
  readonly #pairs: (readonly [string, string])[] = [];
  readonly #challenges = new Map<string, string>();

  constructor(parts: Parts) {
    this.#parts = parts;
    this.routes = [
      {
        method: "POST",
        path: "/oauth/v1/device_authorization",
        handle: ({ body, host, authorization }) => this.#startDevice(body, host, authorization),
      },
      {
        method: "POST",
        path: "/open-apis/authen/v2/oauth/token",
        handle: ({ body }) => this.#token(body, 2),
      },
      { method: "POST", path: "/oauth/v3/token", handle: ({ body }) => this.#token(body, 3) },
      { method: "POST", path: "/oauth/v1/revoke", handle: ({ body }) => this.#revokeToken(body) },
      {
        method: "GET",
        path: "/open-apis/authen/v1/user_info",
        handle: ({ authorization }) => this.#userInfo(authorization),
      },
    ];
  }

  get waiting(): readonly WaitingConsent[] {
    const now = this.#parts.clock.now();
    return [...this.#flows.values()]
      .filter(({ state, expiresAt }) => state === "waiting" && expiresAt > now)
      .map(({ app, link, scopes, expiresAt }) => ({
        link,
        appId: app.appId,
        appName: app.name,
        scopes: this.#offered(app.appId, scopes),
        expiresAt,
      }));
  }

  asked(link: string): Omit<WaitingConsent, "expiresAt"> | undefined {
    const url = new URL(link);
    if (!url.pathname.endsWith("/authorize")) {
      return this.waiting.find((one) => new URL(one.link).search === url.search);
    }
    const app = this.#parts.apps.get(url.searchParams.get("client_id") ?? "");
    if (app === undefined || !URL.canParse(url.searchParams.get("redirect_uri") ?? "")) {
      return undefined;
    }
    const scopes = this.#offered(app.appId, scopesIn(url.searchParams.get("scope") ?? ""));
    return { link, appId: app.appId, appName: app.name, scopes };
  }

  consent(link: string, by: string, chosen?: readonly string[]): { redirect?: string } {
    const url = new URL(link);
    if (!this.#parts.directory.users.has(by)) throw new Error(`No user ${by}`);
    if (url.pathname.endsWith("/authorize")) return this.#consentToCode(url, by, chosen);
    const flow = this.#flowOf(link);
    this.#grant(flow.app.appId, by, chosen ?? flow.scopes);
    flow.state = { openId: by };
    return {};
  }

  refuse(link: string): { redirect?: string } {
    const url = new URL(link);
    if (url.pathname.endsWith("/authorize")) {
      return { redirect: back(url, { error: "access_denied" }) };
    }
    this.#flowOf(link).state = "refused";
    return {};
  }

  async revoke(appId: string, openId: string, reason: RevokeReason): Promise<DeliveryReport> {
    const app = this.#parts.apps.get(appId);
    const person = this.#parts.directory.users.get(openId);
    if (app === undefined || person === undefined) {
      throw new Error(`No app ${appId} or no user ${openId}`);
    }
    this.#end(openId, appId);
    const event = {
      revoke_token_type: "user_access_token,refresh_token",
      revoke_reason: reason,
      open_id: openId,
      union_id: person.unionId,
      user_id: person.userId,
    };
    const eventType = "auth.user_access_token.revoked_v4";
    return await this.#parts.publish(
      envelope(app, { eventType, event, createdAt: this.#parts.clock.now() }),
    );
  }

  async leave(openId: string): Promise<void> {
    this.#personStates.set(openId, "resigned");
    this.#end(openId);
    const person = this.#parts.directory.users.get(openId);
    const object = {
      open_id: openId,
      union_id: person?.unionId,
      user_id: person?.userId,
      name: person?.name,
    };
    const eventType = "contact.user.deleted_v3";
    const createdAt = this.#parts.clock.now();
    await Promise.all(
      [...this.#parts.apps.values()].map(
        async (app) =>
          await this.#parts.publish(envelope(app, { eventType, event: { object }, createdAt })),
      ),
    );
  }

  setPersonState(openId: string, state: "active" | "resigned" | "frozen"): void {
    this.#personStates.set(openId, state);
  }

  setRefresh(appId: string, state: "on" | "off"): void {
    if (state === "off") this.#refreshOff.add(appId);
    else this.#refreshOff.delete(appId);
  }

  setAccessSeconds(seconds: number): void {
    this.#accessSeconds = seconds;
  }

  expireAccess(openId: string): void {
    const now = this.#parts.clock.now();
    for (const token of this.#access.values()) {
      if (token.openId === openId) token.expiresAt = Math.min(token.expiresAt, now);
    }
  }

  setUserScopes(appId: string, scopes: readonly string[] | undefined): void {
    if (scopes === undefined) this.#userScopes.delete(appId);
    else this.#userScopes.set(appId, new Set(scopes));
  }

  userScopesOf(appId: string): readonly string[] {
    return [...(this.#userScopes.get(appId) ?? [])];
  }

  forbidPair(first: string, second: string): void {
    this.#pairs.push([first, second]);
  }

  demandChallenge(openId: string, link: string | undefined): void {
    if (link === undefined) this.#challenges.delete(openId);
    else this.#challenges.set(openId, link);
  }

  grantedTo(appId: string, openId: string): readonly string[] {
    return [...(this.#granted.get(`${appId} ${openId}`)?.scopes ?? [])];
  }

  authenticate(token: string): TokenOwner {
    const found = this.#access.get(token);
    if (found === undefined) {
      throw new PlatformError(99991668, "Invalid access token for authorization.");
    }
    if (found.expiresAt <= this.#parts.clock.now()) {
      throw new PlatformError(99991677, "token expired");
    }
    const app = this.#parts.apps.get(found.appId);
    const person = this.#parts.directory.users.get(found.openId);
    if (app === undefined || person === undefined) {
      throw new PlatformError(99991668, "Invalid access token.");
    }
    const challenge = this.#challenges.get(found.openId);
    if (challenge !== undefined) {
      throw new PlatformError(21000, "access policy", {
        fields: { data: { challenge_url: challenge } },
      });
    }
    return { app, person, scopes: found.scopes };
  }

  #offered(appId: string, scopes: readonly string[]): string[] {
    const known = this.#userScopes.get(appId);
    return scopes.filter((scope) => scope === "offline_access" || known?.has(scope) !== false);
  }

  #flowOf(link: string): DeviceFlow {
    const flow = [...this.#flows.values()].find((one) => one.link === link);
    if (flow?.state !== "waiting" || flow.expiresAt <= this.#parts.clock.now()) {
      throw new Error("The link belongs to no consent that waits");
    }
    return flow;
  }

  #grant(appId: string, openId: string, scopes: readonly string[]): void {
    const key = `${appId} ${openId}`;
    const granted = this.#granted.get(key) ?? { scopes: new Set<string>(), at: 0 };
    for (const scope of this.#offered(appId, scopes)) granted.scopes.add(scope);
    granted.at = this.#parts.clock.now();
    this.#granted.set(key, granted);
  }

  #end(openId: string, appId?: string): void {
    const isTheirs = (token: Token) =>
      token.openId === openId && (appId === undefined || token.appId === appId);
    for (const [token, owner] of this.#access) if (isTheirs(owner)) this.#access.delete(token);
    for (const owner of this.#refresh.values()) {
      if (isTheirs(owner) && owner.state === "good") owner.state = "revoked";
    }
    for (const key of this.#granted.keys()) {
      const [app, person] = key.split(" ");
      if (person === openId && (appId === undefined || app === appId)) this.#granted.delete(key);
    }
  }

  #client(id: unknown, secret: unknown): SimApp {
    const app = this.#parts.apps.get(String(id));
    if (app === undefined) throw refusal(20048, "invalid_client", "the app does not exist");
    if (!sameSecret(secret, app.appSecret)) {
      throw refusal(20002, "invalid_client", "the client secret is invalid");
    }
    return app;
  }

  #startDevice(body: JsonObject, host: string, authorization: string | undefined): JsonObject {
    const basic = /^Basic (.+)$/.exec(authorization ?? "")?.[1] ?? "";
    const [id = "", secret = ""] = Buffer.from(basic, "base64").toString("utf8").split(":");
    const app = this.#client(id, secret);
    if (body.client_id !== id) {
      throw refusal(20024, "invalid_request", "client_id is of another app");
    }
    const scopes = scopesIn(body.scope);
    if (scopes.length > maxScopes) {
      throw refusal(20067, "invalid_scope", `more than ${maxScopes} scopes`);
    }
    if (new Set(scopes).size < scopes.length) {
      throw refusal(20067, "invalid_scope", "a scope is named twice");
    }
    const unknown = scopes.find((scope) => !/^[a-z_]+([:.][A-Za-z0-9_.:-]+)?$/.test(scope));
    if (unknown !== undefined) {
      throw refusal(20043, "invalid_scope", `the scope ${unknown} does not exist`);
    }
    for (const [first, second] of this.#pairs) {
      const [one, other] = [scopes.indexOf(first), scopes.indexOf(second)];
      if (one >= 0 && other > one) {
        throw new PlatformError(403, "Forbidden", { status: 403, text: "<h1>403</h1>" });
      }
    }
    const [deviceCode, userCode, flowId] = [
      randomHex(32),
      randomHex(8).toUpperCase(),
      randomHex(16),
    ];
    const page = `http://${host}/page/device`;
    const link = `${page}?flow_id=${flowId}&user_code=${userCode}`;
    const expiresAt = this.#parts.clock.now() + lives.device * 1_000;
    this.#flows.set(deviceCode, {
      app,
      userCode,
      link,
      scopes,
      expiresAt,
      polledAt: 0,
      state: "waiting",
    });
    return {
      device_code: deviceCode,
      user_code: userCode,
      verification_uri: page,
      verification_uri_complete: link,
      expires_in: lives.device,
      interval: intervalSeconds,
    };
  }

  #token(body: JsonObject, version: 2 | 3): JsonObject {
    const app = this.#client(body.client_id, body.client_secret);
    switch (body.grant_type) {
      case "urn:ietf:params:oauth:grant-type:device_code":
        return this.#pollDevice(app, String(body.device_code));
      case "authorization_code":
        return this.#exchangeCode(app, body, version);
      case "refresh_token":
        return this.#refreshed(app, body);
      default:
        throw refusal(20036, "unsupported_grant_type", "the grant type is not supported");
    }
  }

  #pollDevice(app: SimApp, deviceCode: string): JsonObject {
    const flow = this.#flows.get(deviceCode);
    if (flow?.app !== app || flow.state === "used") {
      throw refusal(20003, "invalid_grant", "the code is invalid");
    }
    const now = this.#parts.clock.now();
    const isEarly = now - flow.polledAt < intervalSeconds * 1_000;
    flow.polledAt = now;
    if (flow.expiresAt <= now && typeof flow.state !== "object") {
      throw refusal(20004, "expired_token", "the code has expired");
    }
    if (flow.state === "refused") throw refusal(20003, "access_denied", "the user refused");
    if (typeof flow.state === "object") {
      const { openId } = flow.state;
      flow.state = "used";
      return this.#issue(app.appId, openId);
    }
    if (isEarly) throw refusal(20003, "slow_down", "polling too often");
    throw refusal(20003, "authorization_pending", "the user has not answered");
  }

  #consentToCode(url: URL, openId: string, chosen?: readonly string[]): { redirect: string } {
    const query = url.searchParams;
    const appId = query.get("client_id") ?? "";
    if (!this.#parts.apps.has(appId)) throw new Error(`No app ${appId}`);
    this.#grant(appId, openId, chosen ?? scopesIn(query.get("scope") ?? ""));
    const code = systemRandom.uuid();
    this.#codes.set(code, {
      appId,
      openId,
      redirectUri: query.get("redirect_uri") ?? "",
      challenge: query.get("code_challenge") ?? undefined,
      expiresAt: this.#parts.clock.now() + lives.code * 1_000,
      used: false,
    });
    return { redirect: back(url, { code }) };
  }

  #exchangeCode(app: SimApp, body: JsonObject, version: 2 | 3): JsonObject {
    const code = this.#codes.get(String(body.code));
    if (code?.appId !== app.appId) throw refusal(20003, "invalid_grant", "the code is invalid");
    if (code.used) throw refusal(20065, "invalid_grant", "the code has been used");
    if (code.expiresAt <= this.#parts.clock.now()) {
      throw refusal(20004, "invalid_grant", "the code has expired");
    }
    if (code.redirectUri !== body.redirect_uri) {
      throw refusal(20071, "invalid_grant", "the redirect_uri differs");
    }
    const verifier = typeof body.code_verifier === "string" ? body.code_verifier : undefined;
    const isAnswered =
      code.challenge === undefined || (verifier !== undefined && fits(code.challenge, verifier));
    const isUnasked = version === 3 && code.challenge === undefined && verifier !== undefined;
    if (!isAnswered || isUnasked) throw refusal(20049, "invalid_grant", "PKCE does not fit");
    code.used = true;
    return this.#issue(app.appId, code.openId);
  }

  #refreshed(app: SimApp, body: JsonObject): JsonObject {
    const token = this.#refresh.get(String(body.refresh_token));
    if (token === undefined) throw refusal(20026, "invalid_grant", "the refresh token is invalid");
    if (token.appId !== app.appId) {
      throw refusal(20024, "invalid_grant", "the refresh token is of another app");
    }
    if (this.#refreshOff.has(app.appId)) {
      throw refusal(20074, "unauthorized_client", "refresh is switched off");
    }
    if (token.state === "used") {
      throw refusal(20073, "invalid_grant", "the refresh token has been used");
    }
    if (token.state === "revoked") {
      throw refusal(20064, "invalid_grant", "the refresh token has been revoked");
    }
    const now = this.#parts.clock.now();
    const consentedAt = this.#granted.get(`${token.appId} ${token.openId}`)?.at ?? 0;
    if (token.expiresAt <= now || consentedAt + lives.consent * 1_000 <= now) {
      throw refusal(20037, "invalid_grant", "the refresh token has expired");
    }
    const wanted = scopesIn(body.scope);
    const granted = this.grantedTo(token.appId, token.openId);
    if (wanted.some((scope) => !granted.includes(scope))) {
      throw refusal(20068, "invalid_scope", "never granted");
    }
    token.state = "used";
    return this.#issue(token.appId, token.openId, wanted.length === 0 ? undefined : wanted);
  }

  /** A new token holds all that the person has granted the app, unless fewer scopes are asked for. */
  #issue(appId: string, openId: string, narrowed?: readonly string[]): JsonObject {
    const scopes = narrowed ?? this.grantedTo(appId, openId);
    const now = this.#parts.clock.now();
    const owner = { appId, openId, scopes: new Set(scopes) };
    const accessToken = `u-${systemRandom.id()}`;
    this.#access.set(accessToken, { ...owner, expiresAt: now + this.#accessSeconds * 1_000 });
    const answer = {
      code: 0,
      access_token: accessToken,
      expires_in: this.#accessSeconds,
      token_type: "Bearer",
      scope: scopes.join(" "),
    };
    if (!scopes.includes("offline_access") || this.#refreshOff.has(appId)) return answer;
    const refreshToken = `ur-${systemRandom.id()}`;
    this.#refresh.set(refreshToken, {
      ...owner,
      expiresAt: now + lives.refresh * 1_000,
      state: "good",
    });
    return { ...answer, refresh_token: refreshToken, refresh_token_expires_in: lives.refresh };
  }

  #revokeToken(body: JsonObject): JsonObject {
    const app = this.#client(body.client_id, body.client_secret);
    const token = String(body.token);
    const owner = this.#refresh.get(token) ?? this.#access.get(token);
    if (owner?.appId === app.appId) void this.revoke(app.appId, owner.openId, "user");
    return { code: 0 };
  }

  #userInfo(authorization: string | undefined): JsonObject {
    const found = this.#access.get(/^Bearer (.+)$/.exec(authorization ?? "")?.[1] ?? "");
    const isGood = found !== undefined && found.expiresAt > this.#parts.clock.now();
    const person = isGood ? this.#parts.directory.users.get(found.openId) : undefined;
    const app = isGood ? this.#parts.apps.get(found.appId) : undefined;
    if (person === undefined || app === undefined) {
      throw new PlatformError(20005, "The access token is invalid.", { status: 200 });
    }
    const state = this.#personStates.get(person.openId);
    if (state === "resigned") throw new PlatformError(20021, "User resigned.", { status: 200 });
    if (state === "frozen") throw new PlatformError(20022, "User frozen.", { status: 200 });
    return success({
      name: person.name,
      open_id: person.openId,
      union_id: person.unionId,
      tenant_key: person.tenantKey ?? app.tenantKey,
    });
  }
}

function scopesIn(text: unknown): string[] {
  return typeof text === "string" ? text.split(" ").filter((scope) => scope !== "") : [];
}

/** `plain` challenges are the verifier itself. */
function fits(challenge: string, verifier: string): boolean {
  return (
    challenge === verifier ||
    challenge === createHash("sha256").update(verifier).digest("base64url")
  );
}

function back(link: URL, values: Record<string, string>): string {
  const address = new URL(link.searchParams.get("redirect_uri") ?? "");
  const state = link.searchParams.get("state");
  for (const [name, value] of Object.entries(values)) address.searchParams.set(name, value);
  if (state !== null) address.searchParams.set("state", state);
  return address.toString();
}
