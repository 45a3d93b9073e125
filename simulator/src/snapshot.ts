import { type ParseResult, parserOf } from "@larkline/protocol";
import { type Static, Type } from "typebox";
import type { AppOptions } from "./apps.ts";
import type { KeptCard } from "./card-store.ts";
import type { SimChat, SimUser } from "./directory.ts";
import type { SimMessage } from "./message-store.ts";
import type { Platform } from "./platform.ts";

const Id = Type.String({ minLength: 1, maxLength: 100 });
const Time = Type.Number();

/** What is checked of a snapshot: all that the platform reads before a person looks at it. */
const Snapshot = Type.Object({
  v: Type.Literal(1),
  apps: Type.Array(Type.Object({ appId: Id, openId: Id, tenantKey: Id })),
  users: Type.Array(Type.Object({ openId: Id, unionId: Id, userId: Id, name: Type.String() })),
  chats: Type.Array(
    Type.Object({
      chatId: Id,
      type: Type.Union([Type.Literal("p2p"), Type.Literal("group")]),
      topic: Type.Boolean(),
      name: Type.String(),
      members: Type.Array(Id),
      bots: Type.Array(Id),
    }),
  ),
  messages: Type.Array(
    Type.Object({
      messageId: Id,
      chatId: Id,
      senderType: Type.Union([Type.Literal("user"), Type.Literal("app")]),
      senderId: Id,
      messageType: Type.String(),
      content: Type.String(),
      text: Type.String(),
      mentions: Type.Array(Type.Object({ key: Type.String(), openId: Id, name: Type.String() })),
      reactions: Type.Array(Type.Object({ emojiType: Type.String(), operatorId: Id })),
      createdAt: Time,
      updatedAt: Time,
    }),
  ),
  cards: Type.Array(
    Type.Object({
      cardId: Id,
      appId: Id,
      messageId: Id,
      createdAt: Time,
      json: Type.Record(Type.String(), Type.Unknown()),
      version: Type.Integer(),
      sequence: Type.Integer(),
    }),
  ),
});
const parse = parserOf(Snapshot);

type KeptChat = Omit<SimChat, "members" | "bots"> & { members: string[]; bots: string[] };

/** People, chats, messages and cards of a platform, as JSON keeps them. Images and files are not in it. */
export interface SimulatorSnapshot extends Omit<Static<typeof Snapshot>, "users" | "chats" | "messages" | "cards"> {
  users: SimUser[];
  chats: KeptChat[];
  messages: SimMessage[];
  cards: KeptCard[];
}

/** Reads what {@link snapshotOf} has made. */
export function parseSnapshot(input: unknown): ParseResult<SimulatorSnapshot> {
  const parsed = parse(input);
  // The fields that are not looked at were written by this module, beside those that are.
  return parsed.ok ? { ok: true, value: input as SimulatorSnapshot } : parsed;
}

/** The latest messages of each chat, with everything that they need. */
export function snapshotOf(platform: Platform, messagesOfChat: number): SimulatorSnapshot {
  const chats = [...platform.directory.chats.values()];
  const messages = chats.flatMap(({ chatId }) => platform.messages.inChat(chatId).slice(-messagesOfChat));
  return {
    v: 1,
    apps: [...platform.apps.values()].map(({ appId, openId, tenantKey }) => ({ appId, openId, tenantKey })),
    users: [...platform.directory.users.values()],
    chats: chats.map((chat) => ({ ...chat, members: [...chat.members], bots: [...chat.bots] })),
    messages: messages.map(({ card: _card, ...message }) => message),
    cards: messages.flatMap(({ messageId }) => cardOf(platform, messageId)),
  };
}

function cardOf({ cards }: Platform, messageId: string): KeptCard[] {
  const entity = cards.ofMessage(messageId);
  if (entity === undefined) return [];
  const { cardId, appId, createdAt, named, json, version, sequence, streamingSince } = entity;
  const kept = { cardId, appId, createdAt, named, json, version, sequence, messageId };
  return [streamingSince === undefined ? kept : { ...kept, streamingSince }];
}

/** The apps under the ids that they had. */
export function appsAsBefore(apps: readonly AppOptions[], { apps: before }: SimulatorSnapshot): AppOptions[] {
  return apps.map((app) => {
    const { openId, tenantKey } = before.find(({ appId }) => appId === app.appId) ?? {};
    return { ...app, ...(openId === undefined ? {} : { openId }), ...(tenantKey === undefined ? {} : { tenantKey }) };
  });
}

/** Puts a snapshot into a platform that is empty. */
export function restore(platform: Platform, { users, chats, messages, cards }: SimulatorSnapshot): void {
  platform.directory.restore(
    users,
    chats.map((chat) => ({ ...chat, members: new Set(chat.members), bots: new Set(chat.bots) })),
  );
  const shown = new Map(cards.map((card) => [card.messageId, platform.cards.view(platform.cards.restore(card))]));
  for (const message of messages) {
    const card = shown.get(message.messageId);
    platform.messages.restore(card === undefined ? message : { ...message, card });
  }
}
