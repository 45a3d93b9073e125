import type { SimMessage } from "./message-store.ts";
import type { Platform } from "./platform.ts";

/** Copies messages into a merged-forward message, with what those hold themselves. */
export function copyForwarded(platform: Platform, upperMessageId: string, messageIds: readonly string[]): void {
  for (const messageId of messageIds) {
    const original = platform.messages.get(messageId);
    if (original === undefined) throw new Error(`No message ${messageId} to forward`);
    const { rootId: _root, parentId: _parent, threadId: _thread, uuid: _uuid, ...facts } = original;
    const copy = platform.messages.add({ ...facts, upperMessageId });
    const held = platform.messages.forwardedIn(messageId).map((message) => message.messageId);
    copyForwarded(platform, copy.messageId, held);
  }
}

/** Everything that a merged-forward message holds, each after the message that holds it. */
export function forwardedMessages(platform: Platform, messageId: string): SimMessage[] {
  return platform.messages
    .forwardedIn(messageId)
    .flatMap((message) => [message, ...forwardedMessages(platform, message.messageId)]);
}
