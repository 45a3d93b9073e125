import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { SimApp } from "./app.ts";
import { PlatformError } from "./platform-error.ts";

const lifetimeMs = 7_200_000;
const renewalMs = 1_800_000;

export interface IssuedToken {
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

export function createTokenStore(now: () => number): TokenStore {
  const owners = new Map<string, { appId: string; expiresAt: number }>();
  const current = new Map<string, string>();
  return {
    issue(app) {
      const existing = current.get(app.appId);
      const left = existing === undefined ? 0 : (owners.get(existing)?.expiresAt ?? 0) - now();
      if (existing !== undefined && left >= renewalMs) return issued(existing, left);
      const token = `t-${randomBytes(18).toString("base64url")}`;
      owners.set(token, { appId: app.appId, expiresAt: now() + lifetimeMs });
      current.set(app.appId, token);
      return issued(token, lifetimeMs);
    },
    authenticate(authorization) {
      const token = /^Bearer (.+)$/i.exec(authorization ?? "")?.[1];
      if (token === undefined) throw new PlatformError(99991661, "Missing access token for authorization.");
      if (!/^[tu]-/.test(token)) {
        throw new PlatformError(99991671, "Invalid access token: it must start with t- or u-.");
      }
      const owner = owners.get(token);
      if (owner === undefined || owner.expiresAt <= now()) {
        throw new PlatformError(99991663, "Invalid access token for authorization. Please make a test with a new one.");
      }
      return owner.appId;
    },
    expire(appId) {
      for (const [token, owner] of owners) if (appId === undefined || owner.appId === appId) owners.delete(token);
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
