import { noticeText } from "@larkline/agent";
import { subscribePerson, unsubscribePerson } from "@larkline/feishu";
import { TokenCallError, type TokenBearer } from "@larkline/feishu/token-call";
import { scheduleEvents } from "@larkline/protocol/schedule";
import { tokenDigestOf } from "@larkline/protocol/tool";
import type {
  DueSubscription,
  StoredSchedule,
  Subscription,
  SubscriptionOwner,
} from "@larkline/store";
import { reportMissingScopes } from "./grants.ts";
import { noticePerson } from "./person-notices.ts";
import type { PersonToken } from "./person-tokens.ts";
import type { Services } from "./services.ts";

// Schedules that wait for an event of the platform need a subscription, which their owner's token makes. What schedules
// and grants are now decides what a subscription has to be; a sweep brings it there, as often as that takes.

/** Subscriptions that one sweep looks at, and how long they are its own, ms. */
const [portion, leaseMs] = [50, 60_000];
/** No page of the platform says how long a subscription lasts: it is made anew so often, ms. */
const renewMs = 86_400_000;
/** What has failed is tried again after so long, twice as long each time, up to an hour, ms. */
const [firstRetryMs, mostRetryMs] = [30_000, 3_600_000];
/** A subscription that no schedule needs and that the platform does not end is let go after so many tries. */
const maxEndTries = 20;

type SubscriptionServices = Pick<
  Services,
  | "subscriptions"
  | "schedules"
  | "personTokens"
  | "bots"
  | "lookups"
  | "store"
  | "outboxSender"
  | "clock"
  | "log"
>;

/** Brings the subscriptions that are due to what they have to be. Calls the platform. */
export async function sweepSubscriptions(
  services: SubscriptionServices,
  signal: AbortSignal,
): Promise<void> {
  const { subscriptions, personTokens, clock, log } = services;
  if (personTokens === undefined) return;
  for (const due of await subscriptions.claimDue(portion, clock.now() + leaseMs)) {
    if (signal.aborted) return;
    await lookAt(services, due, signal).catch((error: unknown) =>
      log.warn({ error, app: due.owner.app, event: due.owner.on }, "a subscription is not settled"),
    );
  }
}

async function lookAt(
  services: SubscriptionServices,
  due: DueSubscription,
  signal: AbortSignal,
): Promise<void> {
  const { schedules, subscriptions, clock } = services;
  const { owner } = due;
  const { app, openId, on } = owner;
  const before = (await subscriptions.ofPerson(owner)).get(on);
  const needing = (await schedules.ofPerson(app, openId)).filter(
    ({ state, schedule: { timing } }) =>
      state === "active" && timing.kind === "event" && timing.on === on,
  );
  const nowMs = clock.now();
  if (needing.length === 0) {
    await end(services, due, { before, signal });
    return;
  }
  const came = await made(services, owner, signal);
  const isSame = before?.state === came.state;
  const tries = came.state === "failed" ? (isSame ? before.tries : 0) + 1 : 0;
  const atMs = isSame ? before.atMs : nowMs;
  if (came.state === "needs_consent" && !isSame) {
    await askAnew(services, owner, { needing, sinceMs: before?.atMs ?? 0 });
  }
  const againAtMs = nowMs + (came.state === "failed" ? retryMs(tries) : renewMs);
  await subscriptions.settle(due, { subscription: { ...came, atMs, tries }, againAtMs });
}

function retryMs(tries: number): number {
  return Math.min(mostRetryMs, firstRetryMs * 2 ** Math.min(tries - 1, 20));
}

/** No schedule needs it any more. Without a token it has ended with the grant. */
async function end(
  services: SubscriptionServices,
  due: DueSubscription,
  { before, signal }: { before: Subscription | undefined; signal: AbortSignal },
): Promise<void> {
  const { subscriptions, clock } = services;
  const came =
    before?.state === "subscribed"
      ? await called(services, due.owner, unsubscribePerson, signal)
      : undefined;
  const tries = (before?.tries ?? 0) + 1;
  if (before === undefined || came?.state !== "failed" || tries >= maxEndTries) {
    await subscriptions.settle(due, undefined);
    return;
  }
  await subscriptions.settle(due, {
    subscription: { ...before, tries },
    againAtMs: clock.now() + retryMs(tries),
  });
}

/** What became of a call with the token of the person. */
type Came = Pick<Subscription, "state" | "why">;

async function made(
  services: SubscriptionServices,
  owner: SubscriptionOwner,
  signal: AbortSignal,
): Promise<Came> {
  return await called(services, owner, subscribePerson, signal);
}

async function called(
  { personTokens, bots, clock, lookups, store, outboxSender, log }: SubscriptionServices,
  owner: SubscriptionOwner,
  call: typeof subscribePerson,
  signal: AbortSignal,
): Promise<Came> {
  const bot = bots.get(owner.app);
  if (bot === undefined || personTokens === undefined) {
    return { state: "failed", why: "this deployment does not have its bot, or keeps no grants" };
  }
  const { scopes } = scheduleEvents[owner.on];
  let given: PersonToken = await personTokens.tokenFor(owner, scopes);
  for (let attempt = 1; given.state === "token"; attempt += 1) {
    const { token } = given;
    const person: TokenBearer = { as: "person", token, apiOrigin: bot.api.baseUrl };
    try {
      await call(owner.on, person, signal);
      return { state: "subscribed" };
    } catch (error) {
      if (!(error instanceof TokenCallError)) throw error;
      const { code } = error;
      if (refusedTokens.has(code) && attempt === 1) {
        given = await personTokens.tokenFor(owner, scopes, tokenDigestOf(token));
        continue;
      }
      if (code === lacksOfPerson) return { state: "needs_consent" };
      if (code === lacksOfApp) {
        await reportMissingScopes(
          { bots, lookups, store, outboxSender, clock, log },
          owner,
          scopes,
        );
      }
      return { state: "failed", why: error.message };
    }
  }
  return given.state === "consent"
    ? { state: "needs_consent" }
    : { state: "failed", why: "the platform does not refresh the grant" };
}

/** Codes of the platform: its token is not good; the person has not granted a scope; the app lacks one. */
const refusedTokens = new Set([99991668, 99991677]);
const [lacksOfPerson, lacksOfApp] = [99991679, 99991672];

/** A person reads once that their permission is missing, where they talk to the bot alone. */
async function askAnew(
  services: SubscriptionServices,
  { app, openId, on }: SubscriptionOwner,
  { needing, sinceMs }: { needing: readonly StoredSchedule[]; sinceMs: number },
): Promise<void> {
  const language = needing[0]?.schedule.language ?? "en";
  const [open, close] = language === "zh" ? ["「", "」"] : ["“", "”"];
  const titles = needing.map(({ schedule: { title } }) => `${open}${title}${close}`);
  await noticePerson(services, {
    app,
    to: openId,
    key: `event-consent-${on}-${openId}-${sinceMs}`,
    conversation: openId,
    text: noticeText("scheduleNeedsConsent", language, {
      titles: titles.join(language === "zh" ? "" : ", "),
    }),
  });
}
