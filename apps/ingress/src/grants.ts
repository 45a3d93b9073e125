import { noticeText } from "@larkline/agent";
import { grantCard, grantText, type ShownGrant } from "@larkline/feishu/cards";
import { pause } from "@larkline/protocol/clock";
import { grantEndsAtMs, grantStateAt } from "@larkline/store";
import type { Channel, Services } from "./services.ts";
import type { Ordered } from "./sessions.ts";

// What people let a bot do as them: they see it, and take it back. Others never see it.

/** Shows the person of a message what they have granted, on a card for them alone. False where that is nothing. */
export async function showGrant(
  services: Services,
  channel: Channel,
  { message, language }: Ordered,
): Promise<boolean> {
  const grant = await shownGrant(services, channel, message.sender.id);
  if (grant === undefined || channel.tellAlone === undefined) return false;
  const [card, text] = [grantCard(grant, language), grantText(grant, language)];
  await channel.tellAlone(message.sender.id, { message, card, text });
  return true;
}

/** What the person has granted; undefined where that is nothing, or was taken back. */
async function shownGrant(
  { grants, clock }: Services,
  { app }: Channel,
  openId: string,
): Promise<ShownGrant | undefined> {
  const grant = await grants.read({ app, openId });
  const state = grant && grantStateAt(grant, clock.now());
  if (grant === undefined || state === undefined || state === "ended") return undefined;
  return { ...grant, state, endsAtMs: grantEndsAtMs(grant) };
}

/** Longer than messages are redelivered ("Event subscription overview": 7 hours). */
const orderKeptMs = 24 * 3_600_000;
/** The platform's clock, which dates messages, may be so much behind ours. */
const clockSkewMs = 120_000;

/** Ends what the person of a message has granted; the answer, which in a group goes to the person alone. */
export async function withdrawGrant(
  services: Services,
  channel: Channel,
  order: Ordered,
): Promise<string> {
  const { message, language } = order;
  const { sender, chatType } = message;
  const meantMs = await grantMeant(services, channel, order);
  const grant = await services.grants.read({ app: channel.app, openId: sender.id });
  const isThere = grant !== undefined && grant.state !== "revoked" && grant.grantedAtMs <= meantMs;
  const gone = meantMs === 0 ? "none" : "ended";
  const ended = isThere ? await endGrant(services, channel, sender.id) : gone;
  const text = noticeText(endings[ended], language);
  if (chatType !== "group" || channel.tellAlone === undefined) return text;
  await channel.tellAlone(sender.id, { message, text });
  return noticeText("grantAlone", language);
}

/**
 * When the person gave the grant that an order is about, epoch ms; 0: there was none. It is stored before anything ends,
 * so that an order that is delivered again, also after the death of this process, ends nothing that was granted later.
 */
async function grantMeant(
  { grants, lookups }: Services,
  { app }: Channel,
  { message: { id, sender, createdAtMs } }: Ordered,
): Promise<number> {
  const key = `withdraw:${app}:${id}`;
  const kept = await lookups.get(key);
  if (kept !== undefined) return Number(kept);
  const { grantedAtMs = 0 } = (await grants.read({ app, openId: sender.id })) ?? {};
  // Of a delivery that got no further than this no more is known than when the person has written it.
  const meantMs = grantedAtMs <= createdAtMs + clockSkewMs ? grantedAtMs : 0;
  await lookups.set(key, String(meantMs), orderKeptMs);
  return meantMs;
}

const endings = {
  ended: "grantWithdrawn",
  ending: "grantEnding",
  none: "grantNone",
} as const;

/** So long it is waited for a worker: a click has to be answered within 3 s. */
const patienceMs = 1_500;
const lookMs = 50;

/** Has a worker end what a person has granted. `ending`: it is stored, and will be. */
export async function endGrant(
  { grants, grantEnds, clock }: Services,
  { app }: Channel,
  openId: string,
): Promise<"ended" | "ending" | "none"> {
  const grant = await grants.read({ app, openId });
  if (grant === undefined || grant.state === "revoked") return "none";
  // Of this consent: a worker that comes to it late ends no later one.
  const { tenant, grantedAtMs: atMs } = grant;
  await grantEnds.add({ app, tenant, openId, reason: "person", by: openId, atMs });
  const untilMs = clock.monotonic() + patienceMs;
  while (clock.monotonic() < untilMs) {
    const now = await grants.read({ app, openId });
    if (now === undefined || now.state === "revoked" || now.grantedAtMs > atMs) return "ended";
    await pause(clock, lookMs);
  }
  return "ending";
}
