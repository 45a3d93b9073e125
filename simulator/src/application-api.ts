import type { SimApp } from "./app.ts";
import type { ConsoleEntry } from "./app-console.ts";
import { success, type ApiCallContext, type ApiRoute, type Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

const path = "/open-apis/application/v6/applications/:app_id";
const rights = ["application:application:self_manage", "admin:app.info:readonly"];

/** An app's own configuration: granted scopes, subscriptions ("Get app information", "Get app version"). */
export function applicationRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "GET",
      path: "/open-apis/application/v6/scopes",
      handle: ({ app }) => {
        const scopes = [...platform.console.entry(app.appId).scopes];
        return success({ scopes: scopes.map((name) => ({ scope_name: name, scope_type: "tenant", grant_status: 1 })) });
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
        if (call.params.version_id !== versionOf(call.app)) throw new PlatformError(210511, "no such version");
        const infos = events.map((type) => ({ event_type: type, event_name: type, event_description: "" }));
        return success({ app_version: { app_id: call.app.appId, status: 1, events, event_infos: infos } });
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
    const names = rights.join(", ");
    throw new PlatformError(99991672, `Access denied. One of the following scopes is required: [${names}].`);
  }
  if (call.query.get("lang") === null) throw new PlatformError(99992402, "field validation failed: lang is required");
  const { app_id: appId } = call.params;
  if (appId !== "me" && appId !== call.app.appId) throw new PlatformError(210508, "insufficient permission level");
  return entry;
}
