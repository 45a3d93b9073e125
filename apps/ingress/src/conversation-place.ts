import { sessionIdOf, sessionKeyOf } from "@larkline/agent";
import type { SessionScope } from "@larkline/process/config";
import type { FeishuMessage } from "@larkline/feishu";
import type { MessageReferences, SessionKey } from "@larkline/protocol";
import type { LookupCache, OutboxTarget } from "@larkline/store";
import type { ChatFacts } from "./chat-facts.ts";

/** Where a message belongs and where its answer goes. */
export interface Place {
  session: SessionKey;
  target: OutboxTarget;
  /** First message of the thread that the conversation lives in. */
  threadRootId?: string;
}

export interface PlacerDeps {
  /** The bot's app id, first part of its session keys. */
  app: string;
  facts: ChatFacts;
  lookups: LookupCache;
  /** Who shares a conversation in a group. */
  scopeIn: (chatId: string) => SessionScope;
}

/** Finds the place of a message; rejects with an EngineError when an id cannot be part of a key. */
export interface Placer {
  of(message: FeishuMessage): Promise<Place>;
  /** The session that a message was put into, as far as it is remembered. */
  sessionOf(chatId: string, messageId: string): Promise<SessionKey>;
}

/** As long as a message can be recalled unasked ("Recall message": a day by default). */
const rememberedMs = 24 * 3_600_000;

/** Whether the place depends on what the chat is at the moment. */
function isOpen({ chatType, rootId, threadId }: FeishuMessage): boolean {
  return threadId === undefined && rootId !== undefined && chatType !== "p2p";
}

/**
 * Replies name the first message of their thread; that message itself already has the thread's id and
 * belongs to the same conversation. In groups in topic form replies may come without a thread id, and
 * their root names the topic. Elsewhere a quoted message changes nothing: a root without a thread is
 * a chain of quotes ("Thread introduction").
 */
export function createPlacer({ app, facts, lookups, scopeIn }: PlacerDeps): Placer {
  const keyOf = (messageId: string): string => `place:${app}:${messageId}`;
  const sessionIn = ({ chatId, chatType, messageId, senderOpenId }: FeishuMessage, root: string | undefined) => {
    const personal = chatType === "group" && scopeIn(chatId) === "sender" ? `:${senderOpenId}` : "";
    return sessionKeyOf(app, `${sessionIdOf({ chatId, rootId: root, messageId })}${personal}`);
  };
  const rootOf = async (message: FeishuMessage): Promise<string | undefined> => {
    const { chatId, messageId, rootId, threadId } = message;
    if (!isOpen(message)) return threadId === undefined ? undefined : (rootId ?? messageId);
    // Delivered again it goes where it went before: any other session would not know it, and answer it once more.
    const before = await lookups.get(keyOf(messageId));
    const isInTopic = before === undefined ? await facts.isTopical(chatId) : before === sessionIn(message, rootId);
    return isInTopic ? rootId : undefined;
  };

  return {
    async of(message) {
      const { chatId, messageId } = message;
      const root = await rootOf(message);
      const session = sessionIn(message, root);
      if (isOpen(message) || session !== chatSession(app, chatId)) {
        await lookups.set(keyOf(messageId), session, rememberedMs);
      }
      return {
        session,
        target: { app, chatId, messageId, inThread: root !== undefined },
        ...(root === undefined || root === messageId ? {} : { threadRootId: root }),
      };
    },
    sessionOf: async (chatId, messageId) => (await lookups.get(keyOf(messageId))) ?? chatSession(app, chatId),
  };
}

/** The conversation of a whole chat. Throws an EngineError when an id cannot be part of a key. */
export function chatSession(app: string, chatId: string): SessionKey {
  return sessionKeyOf(app, sessionIdOf({ chatId }));
}

/** What has to be fetched before the message can be understood; undefined when it speaks for itself. */
export function referencesOf(message: FeishuMessage, { threadRootId }: Place): MessageReferences | undefined {
  const { attachments, forwarded, messageId, parentId } = message;
  const quotedId = parentId === undefined || parentId === threadRootId ? undefined : parentId;
  const references: MessageReferences = {
    ...(attachments.length === 0 ? {} : { attachments: attachments.slice(0, maxAttachments) }),
    ...(quotedId === undefined ? {} : { quotedId }),
    ...(threadRootId === undefined ? {} : { threadRootId }),
    ...(forwarded ? { forwardedId: messageId } : {}),
  };
  return Object.keys(references).length === 0 ? undefined : references;
}

/** More in one message are named in its text but not fetched. */
const maxAttachments = 20;
