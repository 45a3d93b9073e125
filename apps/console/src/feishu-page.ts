import type { BucketState } from "@larkline/store";
import { html, type Html } from "./html.ts";
import { facts, table } from "./parts.ts";
import type { Page, View } from "./view.ts";

/** How one app stands with the platform. */
export interface PlatformState {
  app: string;
  calls: number;
  /** Calls a month that the plan includes; null: nobody counts. */
  monthlyCalls: number | null;
  /** Whether our own limiter is on. */
  isLimited: boolean;
  /** How long the access token is still good for, ms; undefined: there is none at the moment. */
  tokenMs: number | undefined;
  buckets: readonly BucketState[];
}

function minutes({ language }: View, ms: number): string {
  const value = Math.max(1, Math.round(ms / 60_000));
  return new Intl.NumberFormat(language, { style: "unit", unit: "minute", unitDisplay: "long" }).format(value);
}

function callsOf({ language, say }: View, { calls, monthlyCalls }: PlatformState): Html {
  const number = new Intl.NumberFormat(language);
  if (monthlyCalls === null) return html`${number.format(calls)} (${say("noQuota")})`;
  const percent = Math.floor((calls / Math.max(1, monthlyCalls)) * 100);
  const text = `${number.format(calls)} / ${number.format(monthlyCalls)} (${percent} %)`;
  return html`${text}
    <meter min="0" max="${monthlyCalls}" high="${monthlyCalls * 0.8}" value="${Math.min(calls, monthlyCalls)}">
      ${percent} %
    </meter>`;
}

function apiOf({ key }: BucketState): string {
  return key.slice(key.indexOf(":api:") + ":api:".length);
}

function bucketRow(view: View, bucket: BucketState) {
  const { say, language } = view;
  const { left, most, pausedMs } = bucket;
  const seconds = new Intl.NumberFormat(language, { maximumFractionDigits: 1 }).format(pausedMs / 1_000);
  const state = pausedMs > 0 ? `${say("pausedFor")} ${seconds} s` : say(left === 0 ? "isEmpty" : "isFree");
  return [html`<code>${apiOf(bucket)}</code>`, `${left} / ${most}`, state];
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
      [say("accessToken"), tokenMs === undefined ? say("noToken") : `${say("goodFor")} ${minutes(view, tokenMs)}`],
      [say("limiter"), say(isLimited ? "limiterOn" : "limiterOff")],
    ])}
    ${table({
      caption: `${app}: ${say("limiter")}`,
      columns: [say("api"), say("grantsLeft"), say("state")],
      rows: buckets.map((bucket) => bucketRow(view, bucket)),
    })}
  </section>`;
}

/** How much of the platform's limits is left, by app. */
export function feishuPage(view: View, states: readonly PlatformState[]): Page {
  const { say } = view;
  const body =
    states.length === 0
      ? html`<p>${say("noBots")}</p>`
      : html`<p class="quiet">${say("bucketsAre")}</p>
          ${states.map((state) => section(view, state))}`;
  return { title: say("feishu"), body };
}
