import type { SimApp } from "./app.ts";
import type { SimChat } from "./directory.ts";
import type { SimMessage } from "./message-store.ts";
import type { ApiCallContext, Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

/** The chat of this id, when the bot is a member; else 230034, 232009 (dissolved) or 230002. */
export function memberChat(platform: Platform, app: SimApp, chatId: string): SimChat {
  const chat = platform.directory.chats.get(chatId);
  if (chat === undefined) throw new PlatformError(230034, `The receive_id is invalid: ${chatId}`);
  if (chat.status !== "normal") {
    throw new PlatformError(232009, "Your request specifies a chat which has already been dissolved.");
  }
  if (!chat.bots.has(app.appId)) throw new PlatformError(230002, "Bot/User can NOT be out of the chat.");
  return chat;
}

/** What each API family calls a hidden message, by its code for a missing one. */
const invisibleCodes: Readonly<Record<number, number>> = { 230110: 230050, 231003: 231018 };

/**
 * The message that `:message_id` names, in a chat of the bot; else 99992354, the given code, 230002, or the family's
 * code for a hidden message.
 */
export function pathMessage(
  platform: Platform,
  call: ApiCallContext,
  missing = 230110,
): { message: SimMessage; chat: SimChat } {
  const messageId = call.params.message_id ?? "";
  if (!/^om_[\w-]+$/.test(messageId)) {
    throw new PlatformError(99992354, "The request you send is not a valid {message_id}.");
  }
  const message = platform.messages.get(messageId);
  if (message === undefined) throw new PlatformError(missing, "The message does not exist or is deleted.");
  const chat = memberChat(platform, call.app, message.chatId);
  if (message.hidden === true) {
    throw new PlatformError(invisibleCodes[missing] ?? 230050, "The message is invisible to the operator.");
  }
  return { message, chat };
}

/** The same, refusing recalled messages with 230011. */
export function liveMessage(platform: Platform, call: ApiCallContext): { message: SimMessage; chat: SimChat } {
  const found = pathMessage(platform, call);
  if (found.message.recalled) throw new PlatformError(230011, "The message was recalled.");
  return found;
}
