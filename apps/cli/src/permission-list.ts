import { appManifest, type ManifestText, type ScopeLevel } from "@larkline/feishu";
import type { Language } from "./language.ts";
import { webhookPaths } from "./webhook-check.ts";

interface Entry {
  name: string;
  purpose: ManifestText;
}

const levels: Readonly<Record<ScopeLevel, ManifestText>> = {
  required: { zh: "必需", en: "Required" },
  recommended: { zh: "建议", en: "Recommended" },
  optional: { zh: "可选", en: "Optional" },
};

function block(heading: string, entries: readonly Entry[], language: Language): string[] {
  const width = Math.max(...entries.map(({ name }) => name.length));
  return [heading, ...entries.map(({ name, purpose }) => `  ${name.padEnd(width)}  ${purpose[language]}`), ""];
}

/** What has to be ticked in the developer console, and what each entry is for. */
export function permissionList(language: Language): string {
  const { scopes, events, callbacks } = appManifest;
  const [eventPath, cardPath] = webhookPaths("default");
  const zh = language === "zh";
  const scopeBlocks = (["required", "recommended", "optional"] as const).flatMap((level) => {
    const heading = zh ? `权限管理 · ${levels[level].zh}` : `Permissions & Scopes, ${levels[level].en.toLowerCase()}`;
    return block(
      heading,
      scopes.filter((scope) => scope.level === level),
      language,
    );
  });
  const modes = zh
    ? [
        "订阅方式（事件和回调相同）",
        "  使用长连接接收：无需公网地址（FEISHU_TRANSPORT=websocket），保存时需有运行中的 ingress；或",
        `  将事件发送至 https://<你的域名>${eventPath}，回调发送至 https://<你的域名>${cardPath}（webhook）`,
        "",
        "然后在“版本管理与发布”中创建并发布版本；权限在发布后生效。",
      ]
    : [
        "Subscription mode (the same for events and callbacks)",
        "  Long connection: no public address (FEISHU_TRANSPORT=websocket); an ingress has to run while you save; or",
        `  events to https://<your name>${eventPath} and callbacks to https://<your name>${cardPath} (webhook)`,
        "",
        'Then create and publish a version under "Version Management & Release": nothing works before that.',
      ];
  const wanted = scopes.filter(({ level }) => level !== "optional").map(({ name }) => name);
  const batch = JSON.stringify({ scopes: { tenant: wanted, user: [] } });
  return [
    zh
      ? "在 https://open.feishu.cn/app 创建企业自建应用，添加机器人能力，并勾选："
      : "Create a custom app at https://open.feishu.cn/app (Lark: https://open.larksuite.com/app), add the bot feature, and tick:",
    "",
    ...scopeBlocks,
    zh ? "必需和建议的权限可用“批量导入”一次添加：" : "Required and recommended ones at once, by batch import:",
    batch,
    "",
    ...block(zh ? "事件" : "Events", events, language),
    ...block(zh ? "回调" : "Callbacks", callbacks, language),
    ...modes,
    "",
  ].join("\n");
}
