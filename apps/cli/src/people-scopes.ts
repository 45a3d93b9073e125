import type { AppInspector } from "@larkline/feishu";
import { permissionLink } from "@larkline/feishu/app-manifest";
import { withDeadline, type Clock } from "@larkline/protocol/clock";
import { closeRedis, connectRedis, redisUrlProblem } from "@larkline/store/redis";
import { RunnerDirectory } from "@larkline/store/runners";
import type { OpenDoor } from "@larkline/process/config";
import type { FeishuAccess } from "./config.ts";
import { ok, warning, type Finding } from "./finding.ts";

// Scopes with which tools act as people. The app must have them before a person can be asked for theirs: the platform
// leaves others off its page without a word ("Obtain authorization code").

/** The scopes of people that tools need, each with its tools. */
export type PeopleScopes = ReadonlyMap<string, readonly string[]>;

/** Without it a grant ends after two hours. */
const refreshing = "offline_access";

type Offered = Awaited<ReturnType<RunnerDirectory["view"]>>["tools"];

/** Of the tools that runners have announced. */
export function peopleScopesOf(tools: Offered): PeopleScopes {
  const needs = [...tools].flatMap(
    ([
      tool,
      {
        announcement: { identity },
      },
    ]) =>
      identity === undefined || identity.as === "bot"
        ? []
        : [...identity.scopes, refreshing].map((scope) => [scope, tool] as const),
  );
  const all = Map.groupBy(needs, ([scope]) => scope);
  return new Map([...all].map(([scope, of]) => [scope, of.map(([, tool]) => tool)]));
}

/** The same, with what doors need of people. */
export function withDoors(needed: PeopleScopes, doors: readonly OpenDoor[]): PeopleScopes {
  const all = new Map(needed);
  for (const { name, personScopes = [] } of doors) {
    const scopes = personScopes.length === 0 ? [] : [...personScopes, refreshing];
    for (const scope of scopes) all.set(scope, [...(all.get(scope) ?? []), `doors.${name}`]);
  }
  return all;
}

/** The same, of a Redis that is looked at for this alone; nothing where it does not answer. */
export async function readPeopleScopes(
  clock: Clock,
  { redisUrl, namespace }: { redisUrl: string; namespace: string },
  timeoutMs: number,
): Promise<PeopleScopes> {
  if (redisUrlProblem(redisUrl) !== undefined) return new Map();
  const redis = connectRedis(redisUrl, { onError: () => {}, clock });
  try {
    const view = new RunnerDirectory({ redis, namespace }).view();
    return peopleScopesOf((await withDeadline(clock, view, timeoutMs)).tools);
  } catch {
    return new Map();
  } finally {
    await closeRedis(redis, clock);
  }
}

/** Whether the app has what its tools need of people. */
export async function checkPeopleScopes(
  inspector: AppInspector,
  access: Pick<FeishuAccess, "appId" | "domain">,
  needed: PeopleScopes,
): Promise<Finding[]> {
  if (needed.size === 0) return [];
  const check = "feishu.people";
  const granted = await inspector.grantedScopes("user").catch(() => undefined);
  const missing = [...needed].filter(([scope]) => granted?.has(scope) !== true);
  if (missing.length === 0) {
    const count = needed.size;
    return [
      ok(check, {
        zh: `工具以个人身份执行所需的 ${count} 个用户权限齐全`,
        en: `The app has all ${count} scopes of people that its tools need`,
      }),
    ];
  }
  const names = missing.map(([scope]) => scope);
  const link = permissionLink(access, names, "user");
  const purposes = missing
    .map(([scope, tools]) => `${scope} (${tools.toSorted().join(", ")})`)
    .join("; ");
  const text =
    granted === undefined
      ? {
          zh: "无法读取应用已有的用户权限",
          en: "The scopes of people that the app has cannot be read",
        }
      : {
          zh: `工具不能以个人身份执行，应用缺少用户权限：${names.join(", ")}`,
          en: `Tools cannot act as people, because the app lacks scopes of people: ${names.join(", ")}`,
        };
  return [
    warning(check, text, {
      zh: `由管理员打开 ${link} 开通，在“安全设置”中打开“刷新 user_access_token”，然后发布新版本。用途：${purposes}`,
      en: `Have an administrator grant them at ${link}, switch on "Refresh user_access_token" under "Security Settings", then publish a version. They are for: ${purposes}`,
    }),
  ];
}
