import type { SimApp } from "./app.ts";
import { pushAll } from "./chat-events.ts";
import type { SimChat } from "./directory.ts";
import { messageEvent } from "./event-envelope.ts";
import type { SimMessage } from "./message-store.ts";
import type { Platform } from "./platform.ts";

/** A bot's message reaches the bots that it mentions and that ask for other bots' messages; never its sender. */
export function tellMentionedBots(
  platform: Platform,
  chat: SimChat,
  sent: { sender: SimApp; message: SimMessage },
): void {
  const { users } = platform.directory;
  const mentioned = [...platform.apps.values()].filter(
    (app) =>
      app.appId !== sent.sender.appId &&
      chat.bots.has(app.appId) &&
      app.groupScope === "mentioned_with_bots" &&
      sent.message.mentions.some(({ openId }) => openId === app.openId),
  );
  pushAll(platform, mentioned, (app) => messageEvent({ ...sent, app, chat, users }));
}
