import { hash } from "node:crypto";
import { deadline, systemClock, type Clock } from "@larkline/protocol/clock";
import { baseUrlOf, type FeishuDomain } from "./transport/rate-limiter.ts";

// Consent of people, and the tokens with which the app acts as them. The platform answers refusals of OAuth with
// HTTP 400 and a code of its own, so that every decision here is made by code ("Get user_access_token", "Refresh
// user_access_token", RFC 8628).

/** Addresses of the platform; a setting, because the platform is moving the token endpoint from v2 to v3. */
interface GrantEndpoints {
  authorize: string;
  device: string;
  token: string;
  revoke: string;
  userInfo: string;
}

/** What the platform has given for a person. The tokens are secrets. */
export interface GrantedTokens {
  accessToken: string;
  expiresInMs: number;
  /** Absent where the app may not refresh. */
  refreshToken?: string;
  refreshExpiresInMs?: number;
  /** What was granted, which can be less than was asked. */
  scopes: string[];
}

/** A consent that waits for a person. `deviceCode` is a secret. */
interface DeviceStart {
  deviceCode: string;
  /** Opaque. */
  link: string;
  expiresInMs: number;
  intervalMs: number;
}

/**
 * Why the platform gives no token.
 *
 * `denied`: the person refused; `expired`: the link or code has run out; `consent`: the person has to be asked again
 * (`used`: the refresh token was used before, so that the answer to an earlier refresh may be lost); `person_gone`: the
 * person has left, is frozen or unregistered; `not_available`: the app is not offered to this person; `app`: an
 * operator has to fix the app (secret, installation, switch for refreshes, scopes); `challenge`: the company's policy
 * wants a check first; `bug`: our request is wrong; `unknown`: no answer, or a broken one, so that it may have taken
 * effect.
 */
type GrantFailure =
  | { state: "denied" | "expired" | "person_gone" | "not_available" | "app" | "bug"; code: number }
  | { state: "consent"; code: number; used: boolean }
  | { state: "challenge"; code: number; link?: string }
  | { state: "unknown"; code: number };

type TokenAnswer = { state: "granted"; tokens: GrantedTokens } | GrantFailure;

/** `pending`: the person has not answered; `slow_down`: the interval grows by 5 s. */
type PollAnswer = TokenAnswer | { state: "pending" | "slow_down" };

interface CodeRequest {
  redirectUri: string;
  scopes: readonly string[];
  state: string;
  verifier: string;
}

/** Who a token belongs to. */
interface TokenOwner {
  openId: string;
  unionId: string;
  tenantKey: string;
  name: string;
}

interface GrantsApiOptions {
  appId: string;
  appSecret: string;
  domain: FeishuDomain;
  /** Default: those of the domain, with the token endpoint v2. */
  endpoints?: Partial<GrantEndpoints>;
  /** Deadline of one request in ms. */
  timeoutMs?: number;
  clock?: Clock;
}

/** Permission to refresh: asked for with every consent. */
const offlineScope = "offline_access";

/** The most scopes that one request may name ("Obtain authorization code"). */
const maxScopesOfRequest = 50;

/** Every code that has a meaning of its own, by what it demands. */
const failures: ReadonlyMap<
  number,
  Exclude<GrantFailure["state"], "consent" | "challenge">
> = new Map(
  (
    [
      ["bug", [20001, 20024, 20036, 20063, 20067, 20070]],
      ["app", [20002, 20009, 20048, 20069, 20074, 20027]],
      ["expired", [20003, 20004, 20049, 20065, 20071]],
      ["person_gone", [20008, 20066, 20021, 20022, 20023]],
      ["not_available", [20010, 21001]],
      ["unknown", [20050, 20072]],
    ] as const
  ).flatMap(([state, codes]) => codes.map((code) => [code, state] as const)),
);
const needConsent = new Set([20005, 20026, 20037, 20064, 20068, 20073]);
const usedBefore = 20073;
const challenged = 21000;

/** The calls of one app about grants. A failure is a result: no error can carry a secret. */
export class GrantsApi {
  readonly endpoints: GrantEndpoints;
  readonly #appId: string;
  readonly #appSecret: string;
  readonly #timeoutMs: number;
  readonly #clock: Clock;

  constructor({
    appId,
    appSecret,
    domain,
    endpoints,
    timeoutMs = 10_000,
    clock = systemClock,
  }: GrantsApiOptions) {
    this.endpoints = { ...endpointsOf(domain), ...endpoints };
    this.#appId = appId;
    this.#appSecret = appSecret;
    this.#timeoutMs = timeoutMs;
    this.#clock = clock;
  }

  /** Begins a consent; the person opens the link. `scopes`: at most 49, because the permission to refresh is added. */
  async startDevice(
    scopes: readonly string[],
    signal?: AbortSignal,
  ): Promise<{ state: "started"; device: DeviceStart } | GrantFailure> {
    const asked = scopesAsked(scopes);
    const basic = Buffer.from(`${this.#appId}:${this.#appSecret}`).toString("base64");
    const answer = await this.#post(
      this.endpoints.device,
      { client_id: this.#appId, scope: asked.join(" ") },
      { signal, headers: { authorization: `Basic ${basic}` } },
    );
    const [deviceCode, link] = [text(answer, "device_code"), linkIn(answer)];
    if (deviceCode === "" || link === undefined) return failureOf(answer);
    const device = {
      deviceCode,
      link,
      expiresInMs: (seconds(answer, "expires_in") ?? 240) * 1_000,
      intervalMs: (seconds(answer, "interval") ?? 5) * 1_000,
    };
    return { state: "started", device };
  }

  /** Asks once whether the person has answered. */
  async poll(deviceCode: string, signal?: AbortSignal): Promise<PollAnswer> {
    const grant = "urn:ietf:params:oauth:grant-type:device_code";
    const answer = await this.#token({ grant_type: grant, device_code: deviceCode }, signal);
    switch (text(answer, "error")) {
      case "authorization_pending":
        return { state: "pending" };
      case "slow_down":
        return { state: "slow_down" };
      case "access_denied":
        return { state: "denied", code: codeOf(answer) };
      case "expired_token":
      case "invalid_grant":
        return { state: "expired", code: codeOf(answer) };
      default:
        return tokenAnswerOf(answer);
    }
  }

  /**
   * The page on which a person consents, in the code flow: it leads back to `redirectUri`, which the developer console
   * lists, with a code and the `state`. `verifier`: PKCE, of 43 to 128 characters. `scopes`: as of `startDevice`.
   */
  consentLink({ redirectUri, scopes, state, verifier }: CodeRequest): string {
    const query = new URLSearchParams({
      client_id: this.#appId,
      response_type: "code",
      redirect_uri: redirectUri,
      scope: scopesAsked(scopes).join(" "),
      state,
      code_challenge: hash("sha256", verifier, "base64url"),
      code_challenge_method: "S256",
    });
    return `${this.endpoints.authorize}?${query.toString()}`;
  }

  /** Exchanges the code of the consent page. */
  async exchange(
    { code, redirectUri, verifier }: { code: string; redirectUri: string; verifier: string },
    signal?: AbortSignal,
  ): Promise<TokenAnswer> {
    const fields = {
      grant_type: "authorization_code",
      code,
      redirect_uri: redirectUri,
      code_verifier: verifier,
    };
    return tokenAnswerOf(await this.#token(fields, signal));
  }

  /**
   * Exchanges a refresh token, which works once: the caller holds the fence of the grant, and stores the answer before
   * anything else. `issuer`: the endpoint that gave it.
   */
  async refresh(
    refreshToken: string,
    issuer = this.endpoints.token,
    signal?: AbortSignal,
  ): Promise<TokenAnswer> {
    const fields = { grant_type: "refresh_token", refresh_token: refreshToken };
    return tokenAnswerOf(await this.#token(fields, signal, issuer));
  }

  /** Whose token it is. */
  async owner(
    accessToken: string,
    signal?: AbortSignal,
  ): Promise<{ state: "known"; owner: TokenOwner } | GrantFailure> {
    const answer = await this.#ask(this.endpoints.userInfo, {
      method: "GET",
      headers: { authorization: `Bearer ${accessToken}` },
      signal: signal ?? null,
    });
    const data = objectIn(answer, "data");
    const openId = text(data, "open_id");
    if (openId === "") return failureOf(answer);
    const [unionId, tenantKey, name] = [
      text(data, "union_id"),
      text(data, "tenant_key"),
      text(data, "name"),
    ];
    return { state: "known", owner: { openId, unionId, tenantKey, name } };
  }

  /**
   * Ends a token at the platform. `refused`: it does not, and will not: the call is in no document of the platform;
   * `unknown`: it has not answered, and may later.
   */
  async revoke(
    token: string,
    kind: "refresh_token" | "access_token",
    signal?: AbortSignal,
  ): Promise<"ended" | "refused" | "unknown"> {
    const client = { client_id: this.#appId, client_secret: this.#appSecret };
    const answer = await this.#post(
      this.endpoints.revoke,
      { ...client, token, token_type_hint: kind },
      { signal },
    );
    if (answer === undefined) return "unknown";
    const status = answer[unreadStatus];
    if (typeof status === "number") {
      // RFC 7009: the body of a success is empty.
      if (status < 300) return "ended";
      return status >= 500 || status === 429 ? "unknown" : "refused";
    }
    if (answer["code"] === 0) return "ended";
    return failures.get(codeOf(answer)) === "unknown" ? "unknown" : "refused";
  }

  async #token(
    fields: Record<string, string>,
    signal?: AbortSignal,
    url = this.endpoints.token,
  ): Promise<Answer> {
    const client = { client_id: this.#appId, client_secret: this.#appSecret };
    return await this.#post(url, { ...fields, ...client }, { signal });
  }

  async #post(
    url: string,
    fields: Record<string, string>,
    {
      signal,
      headers = {},
    }: { signal?: AbortSignal | undefined; headers?: Record<string, string> },
  ): Promise<Answer> {
    return await this.#ask(url, {
      method: "POST",
      body: new URLSearchParams(fields),
      headers,
      signal: signal ?? null,
    });
  }

  /** The answer, whatever its HTTP status; of one without JSON its status alone; undefined when there is none. */
  async #ask(url: string, request: RequestInit): Promise<Answer> {
    const others = request.signal ? [request.signal] : [];
    try {
      const signal = deadline(this.#clock, this.#timeoutMs, ...others);
      const response = await fetch(url, { ...request, signal, redirect: "error" });
      return bodyOf(await response.text()) ?? { [unreadStatus]: response.status };
    } catch {
      return undefined; // the error may name the request, which holds secrets
    }
  }
}

/** The field of an answer that holds the HTTP status of one that is not JSON. */
const unreadStatus = "unread status";

function bodyOf(json: string): Answer {
  try {
    const body: unknown = JSON.parse(json);
    return typeof body === "object" && body !== null ? { ...body } : undefined;
  } catch {
    return undefined; // a page, or nothing
  }
}

function scopesAsked(scopes: readonly string[]): string[] {
  const asked = [...new Set([...scopes, offlineScope])];
  if (asked.length > maxScopesOfRequest) {
    throw new RangeError(`one request names ${maxScopesOfRequest} scopes at most`);
  }
  return asked;
}

type Answer = Record<string, unknown> | undefined;

function endpointsOf(domain: FeishuDomain): GrantEndpoints {
  const open = baseUrlOf(domain);
  const accounts =
    domain === "feishu" || domain === "lark" ? open.replace("://open.", "://accounts.") : open;
  return {
    authorize: `${accounts}/open-apis/authen/v1/authorize`,
    device: `${accounts}/oauth/v1/device_authorization`,
    token: `${open}/open-apis/authen/v2/oauth/token`,
    revoke: `${accounts}/oauth/v1/revoke`,
    userInfo: `${open}/open-apis/authen/v1/user_info`,
  };
}

function tokenAnswerOf(answer: Answer): TokenAnswer {
  const accessToken = text(answer, "access_token");
  const expiresIn = seconds(answer, "expires_in");
  if (accessToken === "" || expiresIn === undefined) return failureOf(answer);
  const refreshToken = text(answer, "refresh_token");
  const refreshExpiresIn = seconds(answer, "refresh_token_expires_in");
  const scopes = text(answer, "scope").split(" ");
  return {
    state: "granted",
    tokens: {
      accessToken,
      expiresInMs: expiresIn * 1_000,
      ...(refreshToken === "" ? {} : { refreshToken }),
      ...(refreshToken === "" || refreshExpiresIn === undefined
        ? {}
        : { refreshExpiresInMs: refreshExpiresIn * 1_000 }),
      scopes: scopes.filter((scope) => scope !== "" && scope !== offlineScope),
    },
  };
}

function failureOf(answer: Answer): GrantFailure {
  const code = codeOf(answer);
  if (needConsent.has(code)) return { state: "consent", code, used: code === usedBefore };
  if (code === challenged) {
    const link = text(objectIn(answer, "data"), "challenge_url") || text(answer, "challenge_url");
    return { state: "challenge", code, ...(link === "" ? {} : { link }) };
  }
  return { state: failures.get(code) ?? "unknown", code };
}

function codeOf(answer: Answer): number {
  const code = answer?.["code"];
  return typeof code === "number" ? code : 0;
}

function text(answer: Answer, field: string): string {
  const value = answer?.[field];
  return typeof value === "string" ? value : "";
}

function seconds(answer: Answer, field: string): number | undefined {
  const value = answer?.[field];
  return typeof value === "number" && value > 0 ? value : undefined;
}

function objectIn(answer: Answer, field: string): Answer {
  const value = answer?.[field];
  return typeof value === "object" && value !== null ? { ...value } : undefined;
}

/** Undefined where it is no address that a person can open. */
function linkIn(answer: Answer): string | undefined {
  const link = text(answer, "verification_uri_complete");
  const protocol = URL.canParse(link) ? new URL(link).protocol : "";
  return protocol === "https:" || protocol === "http:" ? link : undefined;
}
