import {
  appManifest,
  consoleLink,
  missingScopes,
  permissionLink,
  type AppSubscription,
  type ScopeLevel,
} from "@larkline/feishu/app-manifest";
import { apiBuckets, monthOf, tenantTokenName } from "@larkline/feishu/limits";
import { botOfApp } from "@larkline/process/config";
import {
  type AppFeed,
  type CheckedApp,
  type EventWatchReport,
  maxMissed,
} from "@larkline/store/operations";
import type { BucketState } from "@larkline/store/platform";
import type { FastifyInstance } from "fastify";
import { html, type Html, type HtmlValue, facts, moment, spaced, table, who } from "./html.ts";
import {
  actionForm,
  answerPage,
  countAction,
  fieldOf,
  order,
  slowPageMs,
  type Page,
  type View,
} from "./page.ts";
import type { Services } from "./services.ts";
import type { Word } from "./words.ts";

export const feishuPath = "/feishu";

/** Adds the page about the platform: the app, its limits, and whether all events come to this deployment. */
export function registerFeishu(server: FastifyInstance, services: Services): void {
  const states = async (): Promise<PlatformState[]> => {
    const known = await services.instances.instances();
    const feeds = known
      .filter(({ expiresAtMs }) => expiresAtMs > services.clock.now())
      .flatMap((instance) => instance.feeds);
    return await Promise.all(services.bots.map(async (app) => stateOf(services, app, feeds)));
  };
  server.get(feishuPath, async (request, reply) =>
    answerPage(services, request, reply, async (view) => feishuPage(view, await states())),
  );
  const ofCheck = { config: { pageMs: slowPageMs } };
  server.post(`${feishuPath}/check`, ofCheck, async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const app = fieldOf(request, "app");
      if (app === undefined || !services.bots.includes(app)) return undefined;
      const { word, result } = await order(services, view, { do: "check_app", app }, checkWords);
      countAction(services, "app_checked", feishuPath);
      const found = result?.app;
      return feishuPage(
        { ...view, url: feishuPath },
        await states(),
        found === undefined ? { note: word } : { checked: { app, found } },
      );
    }),
  );
}

const checkWords = {
  done: "appNotChecked",
  nothing: "appNotChecked",
  full: "testRuns",
} as const;

/** What came of looking at an app. */
interface Looked {
  note?: Word;
  checked?: { app: string; found: CheckedApp };
}

/** How one app stands with the platform. */
interface PlatformState {
  app: string;
  /** Platform of the app: `feishu`, `lark` or a base URL. */
  domain: string;
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
    domain: bot.app?.domain ?? config.domain,
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
function feishuPage(
  view: View,
  states: readonly PlatformState[],
  { note, checked }: Looked = {},
): Page {
  const { say } = view;
  const body =
    states.length === 0
      ? html`<p>${say("noBots")}</p>`
      : html`<p class="quiet">${say("bucketsAre")}</p>
          <p class="quiet">${say("strangersAre")}</p>
          ${states.map((state) => section(view, state, checked?.app === state.app ? checked.found : undefined))}`;
  const steps = view.visitor?.role === "operator" && stepsOf(view);
  return {
    title: say("feishu"),
    body: html`${body} ${steps}`,
    ...(note === undefined ? {} : { note }),
  };
}

function section(view: View, state: PlatformState, found: CheckedApp | undefined): Html {
  const { say } = view;
  const { app, isLimited, tokenMs, buckets, calls, monthlyCalls } = state;
  const isNear = monthlyCalls !== null && calls >= monthlyCalls * 0.8;
  return html`<section>
    <h2>${app}</h2>
    ${appOf(view, state, found)} ${isNear && html`<p class="note">${say("quotaNear")}</p>`}
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

/** Whether people can talk to the bot: what the platform knows of its app, and the first message. */
function appOf(view: View, state: PlatformState, found: CheckedApp | undefined): HtmlValue {
  const { say, visitor } = view;
  const { app, feeds } = state;
  const lastAtMs = Math.max(0, ...feeds.map(({ lastEventAtMs = 0 }) => lastEventAtMs));
  const arrived =
    lastAtMs === 0
      ? html`<p class="note">
          ${say("waitsForMessage")} <a href="${feishuPath}">${say("lookAgain")}</a>
        </p>`
      : html`<p>${markOf(view, "ok")} ${say("messageArrived")} ${moment(view, lastAtMs)}</p>`;
  return html`${arrived}
  ${
    visitor?.role === "operator" &&
    actionForm(view, { path: `${feishuPath}/check`, label: "checkApp", fields: { app } })
  }
  ${found !== undefined && foundOf(view, state, found)}`;
}

type Mark = "ok" | "missing" | "optional";

/** A sign, and what it means for those who do not see it. */
function markOf({ say }: View, mark: Mark): Html {
  const [sign, word] = (
    {
      ok: ["✓", "isThere"],
      missing: ["✗", "isMissing"],
      optional: ["–", "isOptional"],
    } as const
  )[mark];
  const kind = mark === "missing" ? "wrong" : mark === "ok" ? "good" : "quiet";
  return html`<span class="${kind}" role="img" aria-label="${say(word)}">${sign}</span>`;
}

function foundOf(view: View, { app, domain, feeds }: PlatformState, found: CheckedApp): Html {
  const { say } = view;
  const { bot, problem, scopes, events, callbacks, isPublished, connection } = found;
  const place = { appId: app, domain };
  if (bot === undefined) {
    return html`<div class="note" role="alert">
      <p>${say("appRefused")} <q>${problem ?? ""}</q></p>
      <p><a href="${consoleLink(place)}/baseinfo">${say("toCredentials")}</a></p>
    </div>`;
  }
  // Where webhooks alone are used, none is opened.
  const isLong = feeds.length === 0 || feeds.some(({ transport }) => transport === "websocket");
  const marked = (isGood: boolean, text: HtmlValue): Html =>
    html`<li>${markOf(view, isGood ? "ok" : "missing")} ${text}</li>`;
  const missing = scopes && missingScopes(new Set(scopes), ["required", "recommended"]);
  return html`<div role="status">
    <ul class="plain">
      ${marked(bot.status === "enabled", `${say("botIs")} ${bot.name}: ${bot.status}`)}
      ${isPublished !== undefined && marked(isPublished, say("versionIsPublished"))}
      ${
        isLong &&
        connection !== undefined &&
        marked(
          connection.isOpen,
          html`${say("longConnection")} ${connection.problem && html`<q>${connection.problem}</q>`}`,
        )
      }
    </ul>
    ${
      missing !== undefined &&
      missing.length > 0 &&
      html`<p>
        <a
          href="${permissionLink(
            place,
            missing.map(({ name }) => name),
          )}"
          >${say("grantMissing")}</a
        >
      </p>`
    }
    ${listOf(view, "appScopes", {
      known: scopes,
      wanted: appManifest.scopes.map((scope) => ({
        ...scope,
        isThere: ![...missingScopes(new Set(scopes ?? []), [scope.level])].some(
          ({ name }) => name === scope.name,
        ),
      })),
    })}
    ${listOf(view, "appEvents", { known: events, wanted: subscribed(appManifest.events, events) })}
    ${listOf(view, "appCallbacks", { known: callbacks, wanted: subscribed(appManifest.callbacks, callbacks) })}
    <p><a href="${consoleLink(place)}/event">${say("toEvents")}</a></p>
  </div>`;
}

function subscribed(
  wanted: readonly AppSubscription[],
  found: readonly string[] | undefined,
): Wanted[] {
  return wanted.map((one) => ({ ...one, isThere: found?.includes(one.name) === true }));
}

interface Wanted extends AppSubscription {
  isThere: boolean;
}

const levelWords: Readonly<Record<ScopeLevel, Word>> = {
  required: "isRequired",
  recommended: "isRecommended",
  optional: "isOptional",
};

/** What the app needs, with what is there of it. Long, so it opens where something is missing. */
function listOf(
  view: View,
  title: Word,
  { known, wanted }: { known: readonly string[] | undefined; wanted: readonly Wanted[] },
): Html {
  const { say, language } = view;
  if (known === undefined) return html`<p class="quiet">${say(title)}: ${say("cannotBeRead")}</p>`;
  const there = wanted.filter(({ isThere }) => isThere).length;
  const isWanting = wanted.some(({ isThere, level }) => !isThere && level !== "optional");
  return html`<details ${isWanting && html`open`}>
    <summary>${say(title)}: ${there} / ${wanted.length}</summary>
    <ul class="plain">
      ${wanted.map(
        ({ name, level, purpose, isThere }) =>
          html`<li>
            ${markOf(view, isThere ? "ok" : level === "optional" ? "optional" : "missing")}
            <code>${name}</code> ${say(levelWords[level])}: ${purpose[language]}
          </li>`,
      )}
    </ul>
  </details>`;
}

/** How an app is connected. Its secret is in the environment of ingress and workers, which the console does not reach. */
function stepsOf({ say }: View): Html {
  return html`<details>
    <summary>${say("connectApp")}</summary>
    <ol>
      <li>
        ${say("stepSetup")}
        <pre><code>npm run setup</code></pre>
        ${say("stepManual")}
        <pre><code>npm run setup -- --manual</code></pre>
      </li>
      <li>${say("stepRestart")}</li>
      <li>${say("stepCheck")}</li>
      <li>${say("stepWrite")}</li>
    </ol>
    <p class="quiet">${say("secretIsElsewhere")}</p>
  </details>`;
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
