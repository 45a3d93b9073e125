import type { SimCardView } from "./card-view.ts";
import { newId } from "./id.ts";

/** A mention as the API shows it; `key` is the placeholder in the content. */
export interface SimMention {
  key: string;
  openId: string;
  name: string;
  bot: boolean;
}

/** A message that is visible in a chat. Times are milliseconds since the epoch. */
export interface SimMessage {
  messageId: string;
  chatId: string;
  senderType: "user" | "app";
  /** Open id of a person, or app id of a bot. */
  senderId: string;
  messageType: string;
  /** The content as JSON text, as the platform stores it. */
  content: string;
  /** What a person reads: mentions resolved, posts and cards flattened to text. */
  text: string;
  /** The card as it is now; only for cards. */
  card?: SimCardView;
  mentions: readonly SimMention[];
  rootId?: string;
  parentId?: string;
  threadId?: string;
  /** The merged-forward message that holds this one. Such messages stand in no chat. */
  upperMessageId?: string;
  uuid?: string;
  createdAt: number;
  updatedAt: number;
  edits: number;
  /** How often the app has replaced the card of the message. */
  patches: number;
  recalled: boolean;
  reactions: readonly SimReaction[];
  /** Suggested replies below a bot's message. */
  followUps?: readonly string[];
  /** Older than the bots' joining where newcomers see no history: the bots may not see it. */
  hidden?: boolean;
}

export interface SimReaction {
  reactionId: string;
  emojiType: string;
  operatorId: string;
  operatorType: "user" | "app";
  at: number;
}

export type NewMessage = Omit<SimMessage, "messageId" | "updatedAt" | "edits" | "patches" | "recalled" | "reactions">;
export type MessageChange = Partial<
  Pick<
    SimMessage,
    | "content"
    | "text"
    | "card"
    | "mentions"
    | "messageType"
    | "updatedAt"
    | "edits"
    | "patches"
    | "recalled"
    | "reactions"
    | "threadId"
    | "followUps"
    | "hidden"
  >
>;

/** Messages in memory, by id and by chat in order of arrival. */
export interface MessageStore {
  add(message: NewMessage): SimMessage;
  get(messageId: string): SimMessage | undefined;
  change(messageId: string, change: MessageChange): SimMessage | undefined;
  inChat(chatId: string): readonly SimMessage[];
  repliesTo(messageId: string): readonly SimMessage[];
  /** The messages that a merged-forward message holds directly. */
  forwardedIn(messageId: string): readonly SimMessage[];
}

export function createMessageStore(): MessageStore {
  const byId = new Map<string, SimMessage>();
  const byChat = new Map<string, string[]>();
  const byParent = new Map<string, string[]>();
  const byUpper = new Map<string, string[]>();
  const found = (ids: readonly string[] | undefined): SimMessage[] => (ids ?? []).flatMap((id) => byId.get(id) ?? []);
  return {
    add(message) {
      const added: SimMessage = {
        ...message,
        messageId: newId("om_"),
        updatedAt: message.createdAt,
        edits: 0,
        patches: 0,
        recalled: false,
        reactions: [],
      };
      byId.set(added.messageId, added);
      if (added.upperMessageId !== undefined) {
        append(byUpper, added.upperMessageId, added.messageId);
        return added;
      }
      append(byChat, added.chatId, added.messageId);
      if (added.parentId !== undefined) append(byParent, added.parentId, added.messageId);
      return added;
    },
    get: (messageId) => byId.get(messageId),
    change(messageId, change) {
      const message = byId.get(messageId);
      if (message === undefined) return undefined;
      const changed = { ...message, ...change };
      byId.set(messageId, changed);
      return changed;
    },
    inChat: (chatId) => found(byChat.get(chatId)),
    repliesTo: (messageId) => found(byParent.get(messageId)),
    forwardedIn: (messageId) => found(byUpper.get(messageId)),
  };
}

function append(index: Map<string, string[]>, key: string, value: string): void {
  const values = index.get(key);
  if (values === undefined) index.set(key, [value]);
  else values.push(value);
}
