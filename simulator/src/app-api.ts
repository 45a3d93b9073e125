import type { ApiRoute, ApiCallContext } from "./api-route.ts";
import { type SimApp, type ConsoleEntry, sameSecret } from "./apps.ts";
import {
  success,
  PlatformError,
  type OpenRoute,
  type JsonObject,
  stringField,
} from "./open-api.ts";
import type { Platform } from "./platform.ts";

const path = "/open-apis/application/v6/applications/:app_id";
const rights = ["application:application:self_manage", "admin:app.info:readonly"];

/** An app's own configuration: granted scopes, subscriptions ("Get app information", "Get app version"). */
export function applicationRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "GET",
      path: "/open-apis/application/v6/scopes",
      handle: ({ app }) => {
        const byType = {
          tenant: [...platform.console.entry(app.appId).scopes],
          user: platform.grants.userScopesOf(app.appId),
        };
        const scopes = Object.entries(byType).flatMap(([type, own]) =>
          own.map((name) => ({ scope_name: name, scope_type: type, grant_status: 1 })),
        );
        return success({ scopes });
      },
    },
    {
      method: "GET",
      path,
      handle: (call) => {
        const { callbacks } = ownEntry(platform, call);
        const { appId, name } = call.app;
        const callbackInfo = { callback_type: "websocket", subscribed_callbacks: callbacks };
        return success({
          app: {
            app_id: appId,
            app_name: name,
            status: 1,
            online_version_id: versionOf(call.app),
            callback_info: callbackInfo,
          },
        });
      },
    },
    {
      method: "GET",
      path: `${path}/app_versions/:version_id`,
      handle: (call) => {
        const { events } = ownEntry(platform, call);
        if (call.params.version_id !== versionOf(call.app)) {
          throw new PlatformError(210511, "no such version");
        }
        const infos = events.map((type) => ({
          event_type: type,
          event_name: type,
          event_description: "",
        }));
        return success({
          app_version: { app_id: call.app.appId, status: 1, events, event_infos: infos },
        });
      },
    },
  ];
}

function versionOf(app: SimApp): string {
  return `oav_${app.appId.slice(4)}`;
}

function ownEntry(platform: Platform, call: ApiCallContext): ConsoleEntry {
  const entry = platform.console.entry(call.app.appId);
  if (!rights.some((name) => entry.scopes.has(name))) {
    const wanted = rights.join(", ");
    throw new PlatformError(
      99991672,
      `Access denied. One of the following scopes is required: [${wanted}].`,
    );
  }
  if (call.query.get("lang") === null) {
    throw new PlatformError(99992402, "field validation failed: lang is required");
  }
  const { app_id: appId } = call.params;
  if (appId !== "me" && appId !== call.app.appId) {
    throw new PlatformError(210508, "insufficient permission level");
  }
  return entry;
}

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
        const token = issue(body);
        return { ...token, app_access_token: token.tenant_access_token };
      },
    },
  ];
}

/** `GET /open-apis/bot/v3/info`: the caller's own identity, at the top level of the answer. */
export function botRoutes(): ApiRoute[] {
  return [
    {
      method: "GET",
      path: "/open-apis/bot/v3/info",
      handle: ({ app }) => ({
        code: 0,
        msg: "ok",
        bot: {
          activate_status: 2,
          app_name: app.name,
          avatar_url: "",
          ip_white_list: [],
          open_id: app.openId,
        },
      }),
    },
  ];
}
