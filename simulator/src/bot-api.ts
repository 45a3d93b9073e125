import type { ApiRoute } from "./platform.ts";

/** `GET /open-apis/bot/v3/info`: the caller's own identity, at the top level of the answer. */
export function botRoutes(): ApiRoute[] {
  return [
    {
      method: "GET",
      path: "/open-apis/bot/v3/info",
      handle: ({ app }) => ({
        code: 0,
        msg: "ok",
        bot: { activate_status: 2, app_name: app.name, avatar_url: "", ip_white_list: [], open_id: app.openId },
      }),
    },
  ];
}
