import { deadline, type Clock } from "@larkline/protocol/clock";
import {
  type AppInspector,
  appManifest,
  type AppSubscription,
  createWebhookChallenge,
  FeishuError,
  type InspectedBot,
  type ManifestText,
  type OwnSubscription,
  missingScopes,
  type PanelEntry,
  type ScopeLevel,
} from "@larkline/feishu";
import { consoleLink, permissionLink } from "@larkline/feishu/app-manifest";
import type { Bilingual, FeishuAccess, Language } from "./config.ts";
import { type Finding, ok, problem, skipped, warning } from "./finding.ts";

type Access = Pick<FeishuAccess, "appId" | "domain">;

/** Codes of the token operation for an app that does not exist or a secret that is not its. */
const wrongCredentials: ReadonlySet<number> = new Set([10003, 10014, 10015]);

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** What a failed look at the app's credentials means. */
export function credentialFinding(error: unknown, access: Access): Finding {
  if (error instanceof FeishuError && wrongCredentials.has(error.code)) {
    return problem(
      "feishu.credentials",
      {
        zh: `飞书拒绝了 FEISHU_APP_ID 和 FEISHU_APP_SECRET（${error.code}）`,
        en: `Feishu refuses FEISHU_APP_ID and FEISHU_APP_SECRET (${error.code})`,
      },
      {
        zh: `从应用的“凭证与基础信息”页面重新复制两者：${consoleLink(access)}/baseinfo；Lark 应用需要 FEISHU_DOMAIN=lark。`,
        en: `Copy both from the app's page "Credentials & Basic Info": ${consoleLink(access)}/baseinfo; an app of Lark needs FEISHU_DOMAIN=lark.`,
      },
    );
  }
  return problem(
    "feishu.reach",
    {
      zh: `无法从飞书读取应用：${reasonOf(error)}`,
      en: `The app cannot be read from Feishu: ${reasonOf(error)}`,
    },
    {
      zh: "检查网络、代理、FEISHU_DOMAIN 和应用的 IP 白名单，稍后再试。",
      en: "Check the network, the proxy, FEISHU_DOMAIN and the app's IP allow list, and try again.",
    },
  );
}

const botAdvice: Readonly<Partial<Record<InspectedBot["status"], Bilingual>>> = {
  not_enabled: {
    zh: "在“添加应用能力”中启用机器人，然后创建并发布版本。",
    en: 'Add the bot under "Add Features", then create and publish a version.',
  },
  disabled: {
    zh: "请企业管理员启用该应用。",
    en: "Ask an administrator of the company to enable the app.",
  },
  pending: {
    zh: "请企业管理员在管理后台审核通过。",
    en: "Ask an administrator of the company to approve it.",
  },
  expired: { zh: "请企业管理员续期。", en: "Ask an administrator of the company to renew it." },
};

/** Whether people can talk to the bot. */
export function botFinding({ name, status }: InspectedBot, access: Access): Finding {
  if (status === "enabled") {
    return ok("feishu.bot", { zh: `机器人“${name}”已启用`, en: `The bot "${name}" is enabled` });
  }
  const advice = botAdvice[status] ?? {
    zh: "在开发者后台查看。",
    en: "Look into the developer console.",
  };
  const text = {
    zh: `机器人“${name}”未启用（${status}）`,
    en: `The bot "${name}" is not enabled (${status})`,
  };
  const at = consoleLink(access);
  return problem("feishu.bot", text, { zh: `${advice.zh} ${at}`, en: `${advice.en} ${at}` });
}

function namesOf(entries: readonly { name: string }[]): string {
  return entries.map(({ name }) => name).join(", ");
}

/** The scopes that the app lacks. `allMessages`: an agent answers everything in groups. */
export function scopeFindings(
  granted: ReadonlySet<string>,
  access: Access,
  needed: readonly string[],
): Finding[] {
  const required = missingScopes(granted, ["required"]);
  required.push(
    ...missingScopes(granted, ["optional"]).filter(({ name }) => needed.includes(name)),
  );
  const recommended = missingScopes(granted, ["recommended"]);
  const advice = (missing: typeof required): Bilingual => {
    const link = permissionLink(
      access,
      missing.map(({ name }) => name),
    );
    const purposes = (language: "zh" | "en") =>
      missing.map(({ name, purpose }) => `${name} (${purpose[language]})`);
    return {
      zh: `打开 ${link} 开通，然后发布新版本。用途：${purposes("zh").join("；")}`,
      en: `Grant them at ${link}, then publish a version. They are for: ${purposes("en").join("; ")}`,
    };
  };
  const findings: Finding[] = [];
  if (required.length > 0) {
    const text = {
      zh: `缺少权限：${namesOf(required)}`,
      en: `Scopes are missing: ${namesOf(required)}`,
    };
    findings.push(problem("feishu.scopes", text, advice(required)));
  }
  if (recommended.length > 0) {
    const text = {
      zh: `建议开通权限：${namesOf(recommended)}`,
      en: `Recommended scopes are missing: ${namesOf(recommended)}`,
    };
    findings.push(warning("feishu.scopes", text, advice(recommended)));
  }
  return findings.length > 0
    ? findings
    : [ok("feishu.scopes", { zh: "权限齐全", en: "All scopes are granted" })];
}

/** The credentials are right, but the list of scopes cannot be had. */
export function hiddenScopes(error: unknown, access: Access): Finding {
  const reason = reasonOf(error);
  const wanted = namesOf(appManifest.scopes.filter(({ level }) => level !== "optional"));
  const at = `${consoleLink(access)}/auth`;
  return warning(
    "feishu.scopes",
    { zh: `无法读取已开通的权限：${reason}`, en: `The granted scopes cannot be read: ${reason}` },
    { zh: `在 ${at} 核对：${wanted}`, en: `Compare at ${at}: ${wanted}` },
  );
}

interface SubscriptionCheck {
  check: "feishu.events" | "feishu.callbacks";
  wanted: readonly AppSubscription[];
  found: readonly string[] | undefined;
  noun: Bilingual;
  /** Optional ones without which something of the configuration would not work. */
  needed: readonly string[];
}

function subscriptionFindings(
  { check, wanted, found, noun, needed }: SubscriptionCheck,
  access: Access,
): Finding[] {
  if (found === undefined) {
    return [
      skipped(check, {
        zh: `飞书没有告知订阅的${noun.zh}`,
        en: `Feishu does not tell the subscribed ${noun.en}`,
      }),
    ];
  }
  const missing = wanted.filter(
    ({ name, level }) => (level !== "optional" || needed.includes(name)) && !found.includes(name),
  );
  if (missing.length === 0) {
    return [ok(check, { zh: `${noun.zh}订阅齐全`, en: `All ${noun.en} are subscribed` })];
  }
  const at = `${consoleLink(access)}/event`;
  const text = {
    zh: `未订阅${noun.zh}：${namesOf(missing)}`,
    en: `Not subscribed ${noun.en}: ${namesOf(missing)}`,
  };
  const advice = {
    zh: `在“事件与回调”页面添加，然后发布新版本：${at}`,
    en: `Add them on the page "Events & Callbacks", then publish a version: ${at}`,
  };
  const severe = missing.some(({ level }) => level === "required");
  return [severe ? problem(check, text, advice) : warning(check, text, advice)];
}

/** Events and callbacks of the published version, as far as the app may see them. */
export async function checkSubscriptions(
  inspector: AppInspector,
  access: Access,
  needed: readonly string[],
): Promise<Finding[]> {
  try {
    const { published, events, callbacks } = await inspector.subscriptions();
    const nouns = {
      events: { zh: "事件", en: "events" },
      callbacks: { zh: "回调", en: "callbacks" },
    };
    if (!published) return [unpublished(access)];
    return [
      ...subscriptionFindings(
        {
          check: "feishu.events",
          wanted: appManifest.events,
          found: events,
          noun: nouns.events,
          needed,
        },
        access,
      ),
      ...subscriptionFindings(
        {
          check: "feishu.callbacks",
          wanted: appManifest.callbacks,
          found: callbacks,
          noun: nouns.callbacks,
          needed: [],
        },
        access,
      ),
    ];
  } catch (error) {
    if (!(error instanceof FeishuError) || error.kind !== "app_setup") {
      return [credentialFinding(error, access)];
    }
    const link = permissionLink(access, ["application:application:self_manage"]);
    const wanted = namesOf(
      [...appManifest.events, ...appManifest.callbacks].filter(({ level }) => level !== "optional"),
    );
    return [
      warning(
        "feishu.events",
        { zh: "无权查看事件和回调订阅", en: "The event and callback subscriptions cannot be seen" },
        {
          zh: `开通 application:application:self_manage 后可自动检查：${link}；或在 ${consoleLink(access)}/event 核对：${wanted}`,
          en: `Grant application:application:self_manage to have them checked: ${link}; or compare at ${consoleLink(access)}/event: ${wanted}`,
        },
      ),
    ];
  }
}

function slashed(names: readonly string[]): string {
  return names.map((name) => `/${name}`).join(", ");
}

/** Whether clients show the bot's commands after a slash. */
export async function checkCommandPanel(
  inspector: AppInspector,
  access: Access,
  wanted: readonly PanelEntry[],
): Promise<Finding> {
  const check = "feishu.commands";
  try {
    const { missing, changed, unknown } = await inspector.panelDrift(wanted);
    if (missing.length + changed.length + unknown.length === 0) {
      const count = wanted.length;
      return ok(check, {
        zh: `命令面板有全部 ${count} 个命令`,
        en: `The command panel shows all ${count} commands`,
      });
    }
    const parts = (label: Record<"missing" | "changed" | "unknown", string>): string =>
      Object.entries({
        [label.missing]: missing,
        [label.changed]: changed,
        [label.unknown]: unknown,
      })
        .filter(([, names]) => names.length > 0)
        .map(([words, names]) => `${words} ${slashed(names)}`)
        .join("; ");
    const en = parts({
      missing: "missing:",
      changed: "other description:",
      unknown: "not a command of the bot:",
    });
    const zh = parts({ missing: "缺少", changed: "说明不同", unknown: "机器人没有的命令" });
    return warning(
      check,
      {
        zh: `命令面板与机器人的命令不同：${zh}`,
        en: `The command panel differs from the bot's commands: ${en}`,
      },
      {
        zh: "运行 npm run setup -- --manual --yes 重新登记；客户端约 5 分钟后显示。",
        en: "Run npm run setup -- --manual --yes to register them; clients show them after about five minutes.",
      },
    );
  } catch (error) {
    return panelFailure(error, access);
  }
}

const panelScopes = ["application:app_slash_command:read", "application:app_slash_command:write"];

/** The panel cannot be read or written; the bot works without it. */
export function panelFailure(error: unknown, access: Access): Finding {
  const check = "feishu.commands";
  if (error instanceof FeishuError && error.kind === "app_setup") {
    const link = permissionLink(access, panelScopes);
    return warning(
      check,
      { zh: "无权读写命令面板", en: "The command panel may not be read and written" },
      {
        zh: `开通 ${panelScopes.join("、")}：${link}`,
        en: `Grant ${panelScopes.join(" and ")}: ${link}`,
      },
    );
  }
  const reason = reasonOf(error);
  return warning(
    check,
    {
      zh: `无法读写命令面板：${reason}`,
      en: `The command panel cannot be read or written: ${reason}`,
    },
    {
      zh: "命令仍可直接输入；稍后再试。",
      en: "People can type the commands all the same; try again later.",
    },
  );
}

function unpublished(access: Access): Finding {
  return problem(
    "feishu.published",
    { zh: "应用还没有发布过版本", en: "The app was never published" },
    {
      zh: `在“版本管理与发布”中创建并发布版本：${consoleLink(access)}/version`,
      en: `Create and publish a version under "Version Management & Release": ${consoleLink(access)}/version`,
    },
  );
}

const connectionLimit = 1000040350;

/** Whether Feishu would give a long connection. */
export async function checkLongConnection(inspector: AppInspector): Promise<Finding> {
  try {
    await inspector.longConnection();
    return ok("feishu.connection", { zh: "可以建立长连接", en: "A long connection can be opened" });
  } catch (error) {
    if (error instanceof FeishuError && error.code === connectionLimit) {
      return problem(
        "feishu.connection",
        {
          zh: "该应用的 50 个长连接已全部占用",
          en: "All 50 long connections of the app are in use",
        },
        {
          zh: "停止多余的 ingress 进程；测试环境请使用另一个应用，否则会抢走事件。",
          en: "Stop ingress processes that are too many; give a test environment its own app, or it takes events away.",
        },
      );
    }
    const reason = reasonOf(error);
    return problem(
      "feishu.connection",
      { zh: `无法建立长连接：${reason}`, en: `No long connection can be opened: ${reason}` },
      {
        zh: "允许到 FEISHU_DOMAIN 的 HTTPS 和 WebSocket 出站连接，并在“事件与回调”中选择“使用长连接接收”。",
        en: 'Allow outgoing HTTPS and WebSocket to FEISHU_DOMAIN, and choose "long connection" under "Events & Callbacks".',
      },
    );
  }
}

/** Feishu waits this long when an address is saved ("Send notifications to developer's server"). */
const challengeMs = 1_000;

/** The addresses of a bot, below that of the ingress. */
function webhookPaths(bot: string): [events: string, cards: string] {
  const start = bot === "default" ? "/feishu" : `/feishu/${bot}`;
  return [`${start}/events`, `${start}/cards`];
}

interface Answer {
  status: number;
  challenge: unknown;
  tookMs: number;
}

async function challengeOf(response: Response): Promise<unknown> {
  const body: unknown = await response.json().catch(() => undefined);
  return typeof body === "object" && body !== null && "challenge" in body
    ? body.challenge
    : undefined;
}

/** How long an ingress may take to answer. */
const answerMs = 5_000;

interface Patience {
  clock: Clock;
  signal: AbortSignal;
}

async function ask(
  url: string,
  body: string,
  { clock, signal }: Patience,
): Promise<Answer | undefined> {
  const startedMs = clock.monotonic();
  try {
    const headers = { "content-type": "application/json; charset=utf-8" };
    const response = await fetch(url, { method: "POST", headers, body, signal, redirect: "error" });
    const challenge = await challengeOf(response);
    return { status: response.status, challenge, tookMs: clock.monotonic() - startedMs };
  } catch {
    return undefined;
  }
}

interface WebhookCheck {
  /** Address of the ingress, without the path. */
  base: string;
  /** The address is our guess: the ingress may be elsewhere. */
  guessed: boolean;
  /** `default` is the bot of `FEISHU_APP_ID`. */
  bot: string;
  feishu: FeishuAccess;
}

function unanswered(url: string, guessed: boolean): Finding {
  if (guessed) {
    const en = `No ingress answers at ${url}; name its public address with --webhook-url to have it checked`;
    return skipped("feishu.webhook", {
      zh: `${url} 没有应答；用 --webhook-url 指定公网地址可检查`,
      en,
    });
  }
  return problem(
    "feishu.webhook",
    { zh: `${url} 没有应答`, en: `${url} does not answer` },
    {
      zh: "启动 ingress，检查域名、证书和反向代理。",
      en: "Start the ingress; check name, certificate and proxy.",
    },
  );
}

async function checkPath(check: WebhookCheck, path: string, patience: Patience): Promise<Finding> {
  const url = `${check.base.replace(/\/+$/, "")}${path}`;
  const { body, challenge } = createWebhookChallenge(check.feishu);
  const answer = await ask(url, body, patience);
  if (answer === undefined) return unanswered(url, check.guessed);
  if (answer.status !== 200 || answer.challenge !== challenge) {
    return problem(
      "feishu.webhook",
      {
        zh: `${url} 没有返回校验值（${answer.status}）`,
        en: `${url} does not return the challenge (${answer.status})`,
      },
      {
        zh: "ingress 的 FEISHU_ENCRYPT_KEY 和 FEISHU_VERIFICATION_TOKEN 必须与这里和开发者后台一致，且 FEISHU_TRANSPORT 为 webhook 或 both。",
        en: "FEISHU_ENCRYPT_KEY and FEISHU_VERIFICATION_TOKEN of the ingress must be those of here and of the console, and its FEISHU_TRANSPORT webhook or both.",
      },
    );
  }
  const took = Math.round(answer.tookMs);
  const text = {
    zh: `${url} 通过校验（${took} ms）`,
    en: `${url} answers the challenge (${took} ms)`,
  };
  if (answer.tookMs <= challengeMs) return ok("feishu.webhook", text);
  return warning("feishu.webhook", text, { zh: "飞书只等待 1 秒。", en: "Feishu waits only 1 s." });
}

/** Sends both addresses of a bot the challenge that the developer console would send. */
export async function checkWebhook(check: WebhookCheck, clock: Clock): Promise<Finding[]> {
  const patience = { clock, signal: deadline(clock, answerMs) };
  return await Promise.all(webhookPaths(check.bot).map((path) => checkPath(check, path, patience)));
}

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
  return [
    heading,
    ...entries.map(({ name, purpose }) => `  ${name.padEnd(width)}  ${purpose[language]}`),
    "",
  ];
}

/** What has to be ticked in the developer console, and what each entry is for. */
export function permissionList(language: Language): string {
  const { scopes, events, callbacks } = appManifest;
  const [eventPath, cardPath] = webhookPaths("default");
  const zh = language === "zh";
  const scopeBlocks = (["required", "recommended", "optional"] as const).flatMap((level) => {
    const heading = zh
      ? `权限管理 · ${levels[level].zh}`
      : `Permissions & Scopes, ${levels[level].en.toLowerCase()}`;
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
        "命令面板（输入 / 时显示的命令）由本命令登记；权限是之后才开通的，就再运行一次。",
      ]
    : [
        "Subscription mode (the same for events and callbacks)",
        "  Long connection: no public address (FEISHU_TRANSPORT=websocket); an ingress has to run while you save; or",
        `  events to https://<your name>${eventPath} and callbacks to https://<your name>${cardPath} (webhook)`,
        "",
        'Then create and publish a version under "Version Management & Release": nothing works before that.',
        "This command registers the command panel (what clients show after a slash): run it again where scopes came later.",
      ];
  const wanted = scopes.filter(({ level }) => level !== "optional").map(({ name }) => name);
  const batch = JSON.stringify({ scopes: { tenant: wanted, user: [] } });
  return [
    zh
      ? "在 https://open.feishu.cn/app 创建企业自建应用，添加机器人能力，并勾选："
      : "Create a custom app at https://open.feishu.cn/app (Lark: https://open.larksuite.com/app), add the bot feature, and tick:",
    "",
    ...scopeBlocks,
    zh
      ? "必需和建议的权限可用“批量导入”一次添加："
      : "Required and recommended ones at once, by batch import:",
    batch,
    "",
    ...block(zh ? "事件" : "Events", events, language),
    ...block(zh ? "回调" : "Callbacks", callbacks, language),
    ...modes,
    "",
  ].join("\n");
}

/** Subscribes the app itself as ingress does when it starts, and says what the platform refuses. */
export async function checkOwnSubscriptions(
  inspector: AppInspector,
  wanted: readonly OwnSubscription[],
): Promise<Finding[]> {
  if (wanted.length === 0) return [];
  const check = "feishu.subscriptions";
  const refused = await Promise.all(
    wanted.map(async (to) => {
      try {
        await inspector.subscribe(to);
        return [];
      } catch (error) {
        return [`${to} (${reasonOf(error)})`];
      }
    }),
  );
  const missing = refused.flat().join("; ");
  const names = wanted.join(", ");
  return [
    missing === ""
      ? ok(check, {
          zh: `应用已自行订阅：${names}`,
          en: `The app has subscribed itself to: ${names}`,
        })
      : warning(
          check,
          { zh: `应用无法订阅：${missing}`, en: `The app cannot subscribe itself to: ${missing}` },
          {
            zh: "没有订阅就收不到这些事件。开通入口所需的权限并发布应用，再重启 ingress。",
            en: "Without it these events do not come. Grant the permissions of the door, publish the app, and restart ingress.",
          },
        ),
  ];
}
