import { newEngineError, parserOf, SessionKey } from "@larkline/protocol";

/** Where a message was written; empty strings count as absent. */
export interface MessagePlace {
  chatId?: string | undefined;
  rootId?: string | undefined;
  messageId?: string | undefined;
}

/**
 * The conversation a message belongs to: chat and thread root, else the message itself; empty when
 * there is nothing to go by.
 */
export function sessionIdOf({ chatId, rootId, messageId }: MessagePlace): string {
  if (!chatId) return messageId ?? "";
  return rootId ? `${chatId}:${rootId}` : chatId;
}

const parseKey = parserOf(SessionKey);

/**
 * The key of a session in stores and queues: `app.chat` or `app.chat.root`. Throws `api_bad_request`
 * for an empty name, for characters outside `[A-Za-z0-9_-]` (a dot would let two conversations
 * share a key), and for keys over 240 characters.
 */
export function sessionKeyOf(app: string, sessionId: string): SessionKey {
  const names = [app, ...sessionId.split(":")];
  const key = names.join(".");
  if (names.every((name) => name !== "" && !name.includes(".")) && parseKey(key).ok) return key;
  throw newEngineError("api_bad_request", "The session id is empty, too long or has characters that are not allowed.", {
    suggestion: "Use letters, digits, '_' and '-', at most 200 characters.",
  });
}
