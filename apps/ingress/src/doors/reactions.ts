import type { Envelope, FeishuMessage } from "@larkline/feishu";
import { parserOf } from "@larkline/protocol";
import { Type } from "@larkline/protocol/type";
import type { Bot } from "../bot.ts";
import { servesPerson, takeMessage, watched } from "../messages.ts";
import type { Services } from "../services.ts";
import { placeOf } from "../sessions.ts";
import { idOf, letIn, readFor } from "./door.ts";

// A reaction to an answer of the bot says what `doors.reactions` has for its emoji, as the person who reacted, in the
// conversation of that answer. Thumbs that rate are apart from this (`feishu.feedback`).

const Id = Type.String({ minLength: 1, maxLength: 128, pattern: "^[\\w-]+$" });
const parseReaction = parserOf(
  Type.Object({
    message_id: Id,
    reaction_type: Type.Object({ emoji_type: Type.String({ maxLength: 64 }) }),
    user_id: Type.Object({ open_id: Id }),
    action_time: Type.Optional(Type.String({ pattern: "^\\d{1,16}$" })),
  }),
);

/** `im.message.reaction.created_v1`. Reactions of bots name no person, and start nothing. */
export async function reactionCame(
  services: Services,
  bot: Bot,
  { event, tenantKey, createdAtMs }: Envelope,
): Promise<void> {
  const { clock, counters, settings } = services;
  const parsed = parseReaction(event);
  if (!parsed.ok) return;
  const { message_id: messageId, reaction_type: reaction, user_id: user } = parsed.value;
  const { reactions } = settings.doors;
  const { emoji_type: emoji } = reaction;
  const words = Object.hasOwn(reactions, emoji) ? reactions[emoji] : undefined;
  if (words === undefined || !(await servesPerson(bot, user.open_id, tenantKey))) return;
  if (createdAtMs > 0 && clock.now() - createdAtMs > settings.limits.messageAgeMs) return;
  // The event has the same time whenever it comes again; a reaction that is set anew has another one.
  const said = idOf([messageId, emoji, user.open_id, parsed.value.action_time ?? ""]);
  if (!(await letIn(services, bot, { door: "reactions", person: user.open_id, id: said }))) return;
  const answer = await answerOf(services, bot, messageId);
  if (answer === undefined) return;
  const { chatId, rootId, threadId } = answer;
  const isDirect = (await bot.directChats.of(user.open_id)) === chatId;
  const reacted: FeishuMessage = {
    messageId,
    chatId,
    chatType: isDirect ? "p2p" : "group",
    senderOpenId: user.open_id,
    senderType: "user",
    messageType: "text",
    text: words,
    parentId: messageId,
    ...(rootId === "" ? {} : { rootId }),
    ...(threadId === "" ? {} : { threadId }),
    attachments: [],
    forwarded: false,
    mentions: [],
    mentionsBot: true,
    mentionsAll: false,
    createdAtMs,
  };
  const place = await placeOf(services, bot, reacted);
  const id = `reaction-${said}`;
  const message = { ...reacted, messageId: id };
  const tenant = tenantKey === "" ? undefined : tenantKey;
  const arriving = {
    app: bot.app,
    id,
    chat: chatId,
    person: user.open_id,
    channel: "feishu",
  } as const;
  const accepted = { verdict: "accept" } as const;
  // No line says that too much waits: there is no message that it would answer.
  const arrival = { message, place, tenant, fromMenu: true, hasToast: true };
  const outcome = await watched(
    services,
    arriving,
    async () => await takeMessage(services, bot, arrival, accepted),
  );
  counters.messages.add(1, { channel: "feishu", outcome });
}

/** The message, where it is one of this bot. */
async function answerOf(services: Services, bot: Bot, messageId: string) {
  const { api, app } = bot;
  const [message] =
    (await readFor(
      services,
      bot,
      async (signal) => await api.messages.fetch(messageId, { signal }),
    )) ?? [];
  const isOwn = message?.senderType === "app" && message.senderId === app;
  return isOwn && !message.deleted && message.chatId !== "" ? message : undefined;
}
