import type { SimMessage } from "./message-store.ts";
import type { Platform } from "./platform.ts";

/** The message that a first answer in a thread is given to belongs to the thread from then on. */
export function openThread(platform: Platform, { parentId, threadId }: SimMessage): void {
  const parent = parentId === undefined ? undefined : platform.messages.get(parentId);
  if (parent === undefined || threadId === undefined || parent.threadId !== undefined) return;
  const changed = platform.messages.change(parent.messageId, { threadId });
  if (changed !== undefined) platform.announce(changed);
}
