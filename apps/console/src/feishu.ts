import { apiBuckets, monthOf, tenantTokenName } from "@larkline/feishu/limits";
import { botOfApp } from "@larkline/process/config";
import { type AppFeed, type EventWatchReport, maxMissed } from "@larkline/store/operations";
import type { BucketState } from "@larkline/store/platform";
import type { FastifyInstance } from "fastify";
import { html, type Html, facts, moment, spaced, table, who } from "./html.ts";
import { answerPage, type Page, type View } from "./page.ts";
import type { Services } from "./services.ts";

/** Adds the page about the platform: its limits, and whether all events come to this deployment. */
export function registerFeishu(server: FastifyInstance, services: Services): void {
  const states = async (): Promise<PlatformState[]> => {
    const known = await services.instances.instances();
    const feeds = known
      .filter(({ expiresAtMs }) => expiresAtMs > services.clock.now())
      .flatMap((instance) => instance.feeds);
    return await Promise.all(services.bots.map(async (app) => stateOf(services, app, feeds)));
  };
  server.get("/feishu", async (request, reply) =>
    answerPage(services, request, reply, async (view) => feishuPage(view, await states())),
  );
}

/** How one app stands with the platform. */
interface PlatformState {
  app: string;
  calls: number;
  /** Calls a month that the plan includes; null: the plan has no limit. */
  monthlyCalls: number | null;
  /** Whether our own limiter is on. */
  isLimited: boolean;
  /** How long the access token is still good for, ms; undefined: there is none at the moment. */
  tokenMs: number | undefined;
  buckets: readonly BucketState[];
  /** How living processes get its events. */
  feeds: readonly AppFeed[];
  /** The last look for events that never came. */
  watch: EventWatchReport | undefined;
}

async function stateOf(
  { clock, governor, tokens, settings, config, watches }: Services,
  app: string,
  feeds: readonly AppFeed[],
): Promise<PlatformState> {
  const bot = botOfApp(settings, app);
  const { monthlyCalls, rateLimits } = bot.feishu;
  const [calls, tokenMs, buckets, watch] = await Promise.all([
    governor.callsOf(app, monthOf(clock.now())),
    tokens.validity(tenantTokenName(bot.app?.domain ?? config.domain, app)),
    governor.look(apiBuckets(app)),
    watches.of(app),
  ]);
  return {
    app,
    calls,
    monthlyCalls,
    isLimited: rateLimits,
    tokenMs,
    buckets,
    feeds: feeds.filter((feed) => feed.app === app),
    watch,
  };
}

/** How much of the platform's limits is left, and whether others take events, by app. */
function feishuPage(view: View, states: readonly PlatformState[]): Page {
  const { say } = view;
  const body =
    states.length === 0
      ? html`<p>${say("noBots")}</p>`
      : html`<p class="quiet">${say("bucketsAre")}</p>
          <p class="quiet">${say("strangersAre")}</p>
          ${states.map((state) => section(view, state))}`;
  return { title: say("feishu"), body };
}

function section(view: View, state: PlatformState): Html {
  const { say } = view;
  const { app, isLimited, tokenMs, buckets, calls, monthlyCalls } = state;
  const isNear = monthlyCalls !== null && calls >= monthlyCalls * 0.8;
  return html`<section>
    <h2>${app}</h2>
    ${isNear && html`<p class="note">${say("quotaNear")}</p>`}
    ${facts([
      [say("monthlyCalls"), callsOf(view, state)],
      [
        say("accessToken"),
        tokenMs === undefined ? say("noToken") : `${say("goodFor")} ${minutes(view, tokenMs)}`,
      ],
      [say("limiter"), say(isLimited ? "limiterOn" : "limiterOff")],
      [say("ourConnections"), connectionsText(view, state)],
      [say("lastLook"), lastLookText(view, state)],
    ])}
    ${state.watch !== undefined && state.watch.missed.length > 0 && missedOf(view, state.watch)}
    ${table({
      caption: `${app}: ${say("limiter")}`,
      columns: [say("api"), say("grantsLeft"), say("state")],
      rows: buckets.map((bucket) => bucketRow(view, bucket)),
    })}
  </section>`;
}

function callsOf({ language, say }: View, { calls, monthlyCalls }: PlatformState): Html {
  const number = new Intl.NumberFormat(language);
  if (monthlyCalls === null) return html`${number.format(calls)} (${say("noQuota")})`;
  const percent = Math.floor((calls / Math.max(1, monthlyCalls)) * 100);
  const text = `${number.format(calls)} / ${number.format(monthlyCalls)} (${percent} %)`;
  return html`${text}
    <meter
      min="0"
      max="${monthlyCalls}"
      high="${monthlyCalls * 0.8}"
      value="${Math.min(calls, monthlyCalls)}"
    >
      ${percent} %
    </meter>`;
}

/** How many there are, and when the last event came, by whatever way. */
function connectionsText(view: View, { feeds }: PlatformState): Html {
  const { say } = view;
  const connected = feeds.filter(
    ({ transport, state }) => transport === "websocket" && state === "connected",
  );
  const lastAtMs = Math.max(0, ...feeds.map(({ lastEventAtMs = 0 }) => lastEventAtMs));
  return html`${connected.length},
  ${lastAtMs === 0 ? say("noEventYet") : html`${say("lastEvent")} ${moment(view, lastAtMs)}`}`;
}

function lastLookText(view: View, { watch }: PlatformState): Html | string {
  const { say } = view;
  if (watch === undefined) return say("notLooked");
  const { checkedAtMs, compared, problem } = watch;
  return html`${moment(view, checkedAtMs)}: ${say("comparedMessages")}
  ${compared}${problem !== undefined && html`. ${say("couldNotLook")} <code>${problem}</code>`}`;
}

/** What to do about messages that another client of the app probably took. */
function missedOf(view: View, { app, missed }: EventWatchReport): Html {
  const { say } = view;
  const count = missed.length >= maxMissed ? `${maxMissed}+` : String(missed.length);
  return html`<div class="note" role="alert">
      <p><strong>${say("unknownTakes")}</strong> ${say("neverCame")} ${count}.</p>
      <p>${say("whatToDo")}</p>
    </div>
    ${table({
      caption: `${app}: ${say("missedMessages")}`,
      columns: [say("message"), say("chat"), say("sent")],
      rows: missed.map(({ messageId, chatId, createdAtMs }) => [
        html`<code>${messageId}</code>`,
        html`<code>${who(chatId)}</code>`,
        moment(view, createdAtMs),
      ]),
    })}`;
}

function minutes({ language }: View, ms: number): string {
  const value = Math.max(1, Math.round(ms / 60_000));
  return spaced(
    new Intl.NumberFormat(language, { style: "unit", unit: "minute", unitDisplay: "long" }).format(
      value,
    ),
  );
}

function bucketRow(view: View, bucket: BucketState) {
  const { say, language } = view;
  const { left, most, pausedMs } = bucket;
  const seconds = new Intl.NumberFormat(language, { maximumFractionDigits: 1 }).format(
    pausedMs / 1_000,
  );
  const state =
    pausedMs > 0 ? `${say("pausedFor")} ${seconds} s` : say(left === 0 ? "isEmpty" : "isFree");
  return [html`<code>${apiOf(bucket)}</code>`, `${left} / ${most}`, state];
}

function apiOf({ key }: BucketState): string {
  return key.slice(key.indexOf(":api:") + ":api:".length);
}
