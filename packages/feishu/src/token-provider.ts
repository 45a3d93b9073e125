import { parserOf } from "@larkline/protocol";
import type { TokenCache } from "@larkline/store";
import { withTenantToken, type Client } from "@larksuiteoapi/node-sdk";
import { Type } from "typebox";
import { FeishuError, feishuErrorOf } from "./error.ts";
import { tenantTokenName } from "./limits.ts";

/** The app's tenant access token. */
export interface TokenProvider {
  /** A token believed to be good; a different one than `rejected`, which the platform refused. */
  get(rejected?: string): Promise<string>;
}

export interface TokenProviderOptions {
  client: Client;
  appId: string;
  appSecret: string;
  baseUrl: string;
  tokenCache: TokenCache;
  now?: () => number;
}

const api = "auth.tenantAccessToken";

/** A value of the shared cache is trusted for this long before the cache is asked again. */
const memoMs = 60_000;

/**
 * The platform hands out the same token while more than 30 min are left and keeps the old one valid
 * after that (document "tenant_access_token_internal"), so asking again 10 min before the end is safe.
 */
const marginSeconds = 600;

const parseToken = parserOf(
  Type.Object({ tenant_access_token: Type.String({ minLength: 1 }), expire: Type.Number({ minimum: 0 }) }),
);

function unreadable(): FeishuError {
  return new FeishuError({ api, kind: "unavailable", code: 0, httpStatus: 200, reason: "answer without a token" });
}

/** No token, so nothing was executed: never uncertain for the call that needed it. */
function withoutEffect(error: FeishuError): FeishuError {
  if (!error.uncertain) return error;
  return new FeishuError({ ...error, reason: "no access token", uncertain: false });
}

/** Shares one token among all processes through `tokenCache`, with a short memory of its own. */
export function createTokenProvider(options: TokenProviderOptions): TokenProvider {
  const { client, appId, appSecret, baseUrl, tokenCache } = options;
  const now = options.now ?? Date.now;
  const key = tenantTokenName(baseUrl, appId);
  let memo: { token: Promise<string>; untilMs: number } | undefined;

  async function fetchToken(): Promise<{ value: string; ttlMs: number }> {
    try {
      const body: unknown = await client.auth.v3.tenantAccessToken.internal({
        data: { app_id: appId, app_secret: appSecret },
      });
      const parsed = parseToken(body);
      if (!parsed.ok) throw unreadable();
      const { tenant_access_token: value, expire } = parsed.value;
      return { value, ttlMs: Math.max(expire - marginSeconds, expire / 2) * 1000 };
    } catch (error) {
      throw withoutEffect(feishuErrorOf(api, error));
    }
  }

  async function shared(rejected?: string): Promise<string> {
    try {
      return await tokenCache.get(key, fetchToken, rejected);
    } catch (error) {
      if (error instanceof FeishuError) throw error;
      throw new FeishuError({ api, kind: "unavailable", code: 0, httpStatus: 0, reason: "token cache failed" });
    }
  }

  function remember(rejected?: string): Promise<string> {
    const token = shared(rejected);
    const entry = { token, untilMs: now() + memoMs };
    memo = entry;
    token.catch(() => {
      if (memo === entry) memo = undefined;
    });
    return token;
  }

  return {
    get: async (rejected) => {
      if (memo !== undefined && memo.untilMs > now()) {
        const token = await memo.token;
        if (token !== rejected) return token;
      }
      return await remember(rejected);
    },
  };
}

/** The header that makes the SDK use our token; the SDK's own cache never drops a refused one. */
export function authorization(token: string): Record<string, string> {
  return { ...withTenantToken(token).headers };
}
