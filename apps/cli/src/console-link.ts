import type { FeishuAccess } from "./config.ts";

type Access = Pick<FeishuAccess, "appId" | "domain">;

const clouds: Readonly<Record<string, string>> = {
  feishu: "https://open.feishu.cn",
  lark: "https://open.larksuite.com",
};

/** The developer console's page of the app. */
export function consoleLink({ appId, domain }: Access): string {
  return `${clouds[domain] ?? domain.replace(/\/+$/, "")}/app/${encodeURIComponent(appId)}`;
}

/** The page that asks for these scopes at once. */
export function permissionLink(access: Access, scopes: readonly string[]): string {
  return `${consoleLink(access)}/auth?q=${scopes.join(",")}&op_from=openapi&token_type=tenant`;
}
