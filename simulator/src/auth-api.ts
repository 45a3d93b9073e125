import { stringField, type JsonObject } from "./json-fields.ts";
import type { OpenRoute, Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";
import { sameSecret } from "./token-store.ts";

/** Token endpoints of a custom app; their fields stand at the top level of the answer. */
export function authRoutes(platform: Platform): OpenRoute[] {
  const issue = (body: JsonObject): JsonObject => {
    const app = platform.apps.get(stringField(body, "app_id"));
    if (app === undefined) throw new PlatformError(10003, "invalid param", { status: 200 });
    if (!sameSecret(body.app_secret, app.appSecret)) {
      throw new PlatformError(10015, "app secret invalid", { status: 200 });
    }
    const { token, expireSeconds } = platform.tokens.issue(app);
    return { code: 0, msg: "ok", tenant_access_token: token, expire: expireSeconds };
  };
  return [
    {
      method: "POST",
      path: "/open-apis/auth/v3/tenant_access_token/internal",
      handle: ({ body }) => issue(body),
    },
    {
      method: "POST",
      path: "/open-apis/auth/v3/app_access_token/internal",
      handle({ body }) {
        const issued = issue(body);
        return { ...issued, app_access_token: issued.tenant_access_token };
      },
    },
  ];
}
