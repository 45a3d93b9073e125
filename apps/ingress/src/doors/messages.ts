import { createHash } from "node:crypto";
import { isTimeZone } from "@larkline/agent/budgets";
import { sessionKeyOf } from "@larkline/agent/messages";
import { quietEnd } from "@larkline/agent/schedules";
import { apiApp, jsonParserOf } from "@larkline/protocol";
import { withDeadline } from "@larkline/protocol/clock";
import { personZoneKey } from "@larkline/protocol/schedule";
import { Type, type Static } from "@larkline/protocol/type";
import { ApiError } from "@larkline/protocol/views/run-api";
import type { OutboxRecord } from "@larkline/store";
import type { FastifyInstance } from "fastify";
import { bodyText } from "../api-access.ts";
import { decisionDeadlineMs, type Bot } from "../bot.ts";
import type { Services } from "../services.ts";

// `POST /v1/messages`: a program has the bot write to a person or a chat, without a turn. Where they have their quiet
// hours the message is held until these end.

const To = Type.Union([
  Type.Object(
    { person: Type.String({ pattern: "^ou_[A-Za-z0-9]{1,64}$" }) },
    { additionalProperties: false },
  ),
  Type.Object(
    { chat: Type.String({ pattern: "^oc_[A-Za-z0-9]{1,64}$" }) },
    { additionalProperties: false },
  ),
]);

/** Body of `POST /v1/messages`. */
const MessageRequest = Type.Object(
  {
    to: To,
    /** Markdown. */
    text: Type.String({ minLength: 1, maxLength: 10_000 }),
    /** Makes a repeated request mean the same message. */
    message_id: Type.String({ pattern: "^[\\x21-\\x7e]{1,100}$" }),
    /** The bot that writes. Default `default`. */
    bot: Type.Optional(Type.String({ minLength: 1, maxLength: 32 })),
  },
  { additionalProperties: false },
);
type MessageRequest = Static<typeof MessageRequest>;
const parseRequest = jsonParserOf(MessageRequest);

const MessageTaken = Type.Object({
  /** False: a request with this `message_id` was taken before. */
  is_new: Type.Boolean(),
  /** Epoch ms at which quiet hours end; null: it is on its way. */
  held_until: Type.Union([Type.Integer(), Type.Null()]),
});

const hourMs = 3_600_000;
/** How long a repeated request is known. */
const keptMs = 24 * hourMs;

function keptAs({ app }: Bot, key: string): string {
  return `message:${app}:${key}`;
}

/** Adds the door. Needs a scope that only callers of the API reach. */
export function registerMessageRoutes(
  scope: FastifyInstance,
  services: Services,
  bots: readonly Bot[],
): void {
  const { settings, clock, log, redis } = services;
  const door = settings.doors.messages;
  if (door === undefined) return;
  const allowed = new Set(
    door.callers.map((name) => (name === apiApp ? apiApp : `${apiApp}:${name}`)),
  );
  const operation = {
    about: {
      en: "Has a bot write to a person or chat. Held back in their quiet hours (22:00 to 08:00).",
      zh: "让机器人给人或群发消息；免打扰时段（22:00 至 08:00）内暂缓发送。",
    },
    body: MessageRequest,
    answers: { 202: MessageTaken, 400: ApiError, 403: ApiError, 413: ApiError },
  };
  scope.post("/v1/messages", { config: { operation } }, async (request, reply) => {
    if (!allowed.has(request.caller)) {
      const error = "this caller may not write to people (doors.messages.callers)";
      return await reply.code(403).send({ error });
    }
    const parsed = parseRequest(bodyText(request.body) ?? "");
    if (!parsed.ok) return await reply.code(400).send({ error: parsed.error });
    const { bot: name = "default" } = parsed.value;
    const bot = bots.find((one) => one.name === name);
    if (bot === undefined) {
      return await reply.code(400).send({ error: `bot: there is no bot '${name}' here` });
    }
    const unavailable = async () =>
      await reply.code(503).header("retry-after", "1").send({ error: "try again" });
    if (!redis.isReady()) return await unavailable();
    try {
      const working = take(services, bot, request.caller, parsed.value);
      const taken = await withDeadline(clock, working, decisionDeadlineMs);
      if (typeof taken === "object") return await reply.code(202).send(taken);
      return await reply
        .code(429)
        .header("retry-after", `${Math.ceil(taken / 1_000)}`)
        .send({ error: "this person or chat has got enough messages for now" });
    } catch (error) {
      log.error({ error, caller: request.caller }, "a message may not be stored");
      return await unavailable();
    }
  });

  /** A number: so many ms later the recipient may get another one. */
  async function take(
    { governor, lookups, store }: Services,
    bot: Bot,
    caller: string,
    { to, text, message_id: id }: MessageRequest,
  ): Promise<Static<typeof MessageTaken> | number> {
    const [target, kind] = "person" in to ? [to.person, "person"] : [to.chat, "chat"];
    const key = createHash("sha256")
      .update(JSON.stringify([caller, id]))
      .digest("hex")
      .slice(0, 32);
    const known = await lookups.get(keptAs(bot, key));
    if (known !== undefined) {
      return { is_new: false, held_until: known === "" ? null : Number(known) };
    }
    const untilMs = door?.quietHours === true ? await quietUntil(services, bot, to) : undefined;
    const record: OutboxRecord = {
      v: 1,
      id: `message-${key}`,
      uuid: key,
      // One that is held must not hold up another one.
      session: sessionKeyOf(bot.app, `messages-${target}${untilMs === undefined ? "" : "-held"}`),
      target: { app: bot.app, chatId: target, messageId: "", inThread: false },
      text,
      createdAtMs: clock.now(),
      attempts: 0,
      uncertainSinceMs: 0,
    };
    const waitMs = await governor.takeRequest(
      bot.app,
      `messages to ${kind} ${target}`,
      door?.perHour ?? 1,
      hourMs,
    );
    if (waitMs > 0) return waitMs;
    const { stored, lease } = await store.outbox.push(record, record.id, { notBeforeMs: untilMs });
    if (lease !== undefined) bot.outbox.deliver(lease);
    await lookups.set(keptAs(bot, key), untilMs === undefined ? "" : `${untilMs}`, keptMs);
    return { is_new: stored, held_until: untilMs ?? null };
  }
}

/** When the quiet hours end in which a person or chat is now; undefined: they are in none. */
async function quietUntil(
  { clock, lookups, settings }: Services,
  bot: Bot,
  to: Static<typeof To>,
): Promise<number | undefined> {
  const usual = settings.budgets.timeZone;
  const known = "person" in to ? await lookups.get(personZoneKey(bot.app, to.person)) : undefined;
  const zone = known !== undefined && isTimeZone(known) ? known : usual;
  return quietEnd(zone, clock.now());
}
