import { noticeText } from "@larkline/agent";
import { hash } from "node:crypto";
import {
  keepAliveMs,
  warnMs,
  type GrantOwner,
  type GrantRecord,
  type StoredSchedule,
} from "@larkline/store";
import { noticePerson } from "./person-notices.ts";
import type { Services } from "./services.ts";

// What becomes of grants between calls: they end when the platform, their person or an operator says so, and those that
// schedules need are kept alive.

/** Grants that one sweep looks after. */
const portion = 50;
/** A grant that only a new schedule would keep alive, and one whose refresh has failed, is looked at again so much later. */
const [idleMs, failedMs] = [3_600_000, 300_000];
const monthMs = 30 * 86_400_000;

type GrantServices = Pick<
  Services,
  "grants" | "grantEnds" | "personTokens" | "schedules" | "store" | "outboxSender" | "clock" | "log"
>;

/** Ends grants that have to end, and looks after those that are due. Calls the platform. */
export async function sweepGrants(services: GrantServices, signal: AbortSignal): Promise<void> {
  const { grants, personTokens, clock, log } = services;
  await sweepGrantEnds(services);
  await personTokens?.endAtPlatform();
  for (const grant of (await grants?.due(clock.now(), portion)) ?? []) {
    if (signal.aborted) return;
    await lookAfter(services, grant).catch((error: unknown) =>
      log.warn({ error, app: grant.app }, "a grant was not looked after"),
    );
  }
}

/** Ends of grants that ingress has handed in. */
export async function sweepGrantEnds({
  grantEnds,
  personTokens,
}: Pick<Services, "grantEnds" | "personTokens">): Promise<void> {
  await grantEnds.each(async ({ app, tenant, openId, ...end }) => {
    await personTokens?.end({ app, tenant, openId }, end);
  });
}

/** Keeps a grant alive that schedules need, and warns their person before the consent ends. */
async function lookAfter(services: GrantServices, grant: GrantRecord): Promise<void> {
  const { grants, personTokens, schedules, clock } = services;
  const nowMs = clock.now();
  const { app, openId, state, refreshEndsAtMs = 0, consentEndsAtMs } = grant;
  const [aliveAtMs, warnAtMs] = [refreshEndsAtMs - keepAliveMs, consentEndsAtMs - warnMs];
  const isEnding = aliveAtMs <= nowMs && nowMs < refreshEndsAtMs;
  const all = state === "active" ? await schedules.ofPerson(app, openId) : [];
  const needing = all.filter((one) => one.state === "active");
  if (needing.length > 0) {
    if (warnAtMs <= nowMs && nowMs < consentEndsAtMs) await warn(services, grant, needing);
    // A refresh says itself when the grant is due next.
    if (isEnding && (await personTokens?.keepAlive(grant)) === true) return;
  }
  const soonMs = needing.length === 0 ? idleMs : failedMs;
  // A grant leaves the index together with its row.
  const moments = [aliveAtMs, warnAtMs, nowMs + (isEnding ? soonMs : monthMs)];
  await grants?.lookAgain(grant, Math.min(...moments.filter((atMs) => atMs > nowMs)));
}

/** Each person reads once within this time that the same permissions are missing, ms. */
const reportedMs = 30 * 86_400_000;

/**
 * An app lacks permissions that a person's call needs. The people whom the configuration names get the page where an
 * administrator adds them, and the person reads why it was not done; each once a month for the same permissions.
 */
export async function reportMissingScopes(
  services: Pick<Services, "bots" | "lookups" | "store" | "outboxSender" | "clock" | "log">,
  { app, openId }: Pick<GrantOwner, "app" | "openId">,
  scopes: readonly string[],
): Promise<void> {
  const { bots, lookups, log } = services;
  const bot = bots.get(app);
  if (bot === undefined || scopes.length === 0) return;
  const wanted = [...new Set(scopes)].toSorted().join(",");
  const set = hash("sha256", `${app} ${wanted}`, "base64url").slice(0, 22);
  const { operators } = bot.settings.feishu;
  const link = `${bot.api.baseUrl}/app/${app}/auth?q=${wanted}&op_from=openapi&token_type=user`;
  log.error({ app, scopes: wanted, link }, "the app lacks permissions that people's calls need");
  const person = operators.length === 0 ? "appLacksAlone" : "appLacks";
  const texts = [
    ...operators.map((to) => [to, `${inBoth("appLacksForOperators")}\n${link}`] as const),
    [openId, inBoth(person)] as const,
  ];
  for (const [to, text] of texts) {
    const key = `lacks-${set}-${to}`;
    if ((await lookups.get(key)) !== undefined) continue;
    await noticePerson(services, { app, to, key, conversation: to, text });
    await lookups.set(key, "sent", reportedMs);
  }
}

/** The language of these people is not known here. */
function inBoth(name: "appLacks" | "appLacksAlone" | "appLacksForOperators"): string {
  return [noticeText(name, "zh"), noticeText(name, "en")].join("\n");
}

/** Warns a person that a grant ends; called once for each consent. */
async function warn(
  services: GrantServices,
  grant: GrantRecord,
  needing: readonly StoredSchedule[],
): Promise<void> {
  const { app, openId, consentEndsAtMs, grantedAtMs, warnedOf } = grant;
  if (warnedOf === grantedAtMs) return;
  const language = needing[0]?.schedule.language ?? "en";
  const date = new Date(consentEndsAtMs).toISOString().slice(0, 10);
  await noticePerson(services, {
    app,
    to: openId,
    key: `grant-ends-${grantedAtMs}-${openId}`,
    conversation: openId,
    text: noticeText("grantEnds", language, { date, count: needing.length }),
  });
  await services.grants?.noteWarning(grant, grantedAtMs);
}
