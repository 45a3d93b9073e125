import { type ParseResult, parserOf } from "@larkline/protocol";
import { type Static, Type } from "@larkline/protocol/type";
import type { AppOptions } from "./apps.ts";
import type { KeptCard } from "./card-store.ts";
import type { SimChat, SimUser } from "./directory.ts";
import type { StoredMedia } from "./media.ts";
import type { SimMessage } from "./message-store.ts";
import type { Platform } from "./platform.ts";
import type { Work } from "./work/index.ts";

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
  // Absent in those of earlier versions.
  media: Type.Optional(
    Type.Array(
      Type.Object({
        key: Type.String({ pattern: "^(img_v3_|file_v3_)[0-9A-Za-z_-]{1,100}$" }),
        kind: Type.Union([Type.Literal("image"), Type.Literal("file")]),
        name: Type.String(),
        mediaType: Type.String(),
        sizeBytes: Type.Integer({ minimum: 0 }),
        ownerAppId: Type.Optional(Id),
        fileType: Type.Optional(Type.String()),
      }),
    ),
  ),
  work: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
});
const parse = parserOf(Snapshot);

type KeptChat = Omit<SimChat, "members" | "bots"> & { members: string[]; bots: string[] };

/** An image or file without its bytes. */
type KeptMedia = Omit<StoredMedia, "bytes">;

/**
 * People, chats, messages, cards and objects of work of a platform, as JSON keeps them, and what images and files these
 * show. The bytes of images and files are not in it: the owner of a snapshot keeps them beside it.
 */
export interface SimulatorSnapshot extends Omit<
  Static<typeof Snapshot>,
  "users" | "chats" | "messages" | "cards" | "media"
> {
  users: SimUser[];
  chats: KeptChat[];
  messages: SimMessage[];
  cards: KeptCard[];
  media?: KeptMedia[];
}

/** Reads what {@link snapshotOf} has made. */
export function parseSnapshot(input: unknown): ParseResult<SimulatorSnapshot> {
  const parsed = parse(input);
  // The fields that are not looked at were written by this module, beside those that are.
  return parsed.ok ? { ok: true, value: input as SimulatorSnapshot } : parsed;
}

/** A platform, and what people work with on it. */
interface Whole {
  platform: Platform;
  work: Work;
}

/** The latest messages of each chat, with everything that they need. */
export function snapshotOf({ platform, work }: Whole, messagesOfChat: number): SimulatorSnapshot {
  const chats = [...platform.directory.chats.values()];
  const messages = chats.flatMap(({ chatId }) =>
    platform.messages.inChat(chatId).slice(-messagesOfChat),
  );
  const cards = messages.flatMap(({ messageId }) => cardOf(platform, messageId));
  return {
    v: 1,
    apps: [...platform.apps.values()].map(({ appId, openId, tenantKey }) => ({
      appId,
      openId,
      tenantKey,
    })),
    users: [...platform.directory.users.values()],
    chats: chats.map((chat) => ({ ...chat, members: [...chat.members], bots: [...chat.bots] })),
    messages: messages.map(({ card: _card, ...message }) => message),
    cards,
    media: mediaIn(
      [...messages.map(({ content }) => content), ...cards.map(({ json }) => JSON.stringify(json))],
      platform,
    ),
    work: work.kept(),
  };
}

/** What these texts name, in the order in which they do. */
function mediaIn(texts: readonly string[], { media }: Platform): KeptMedia[] {
  const keys = new Set(
    texts.flatMap((text) => text.match(/\b(?:img|file)_v3_[0-9A-Za-z_-]+/g) ?? []),
  );
  return [...keys].flatMap((key) => {
    const { bytes: _bytes, ...kept } = media.get(key) ?? { bytes: undefined };
    return "key" in kept ? [kept] : [];
  });
}

function cardOf({ cards }: Platform, messageId: string): KeptCard[] {
  const entity = cards.ofMessage(messageId);
  if (entity === undefined) return [];
  const { cardId, appId, createdAt, named, json, version, sequence, streamingSince } = entity;
  const kept = { cardId, appId, createdAt, named, json, version, sequence, messageId };
  return [streamingSince === undefined ? kept : { ...kept, streamingSince }];
}

/** The apps under the ids that they had. */
export function appsAsBefore(
  apps: readonly AppOptions[],
  { apps: before }: SimulatorSnapshot,
): AppOptions[] {
  return apps.map((app) => {
    const { openId, tenantKey } = before.find(({ appId }) => appId === app.appId) ?? {};
    return {
      ...app,
      ...(openId === undefined ? {} : { openId }),
      ...(tenantKey === undefined ? {} : { tenantKey }),
    };
  });
}

/** Puts a snapshot into a platform that is empty. `bytesOf` has what was kept of an image or file. */
export function restore(
  { platform, work }: Whole,
  { users, chats, messages, cards, media = [], work: keptWork = {} }: SimulatorSnapshot,
  bytesOf: (key: string) => Uint8Array | undefined,
): void {
  for (const kept of media) {
    const bytes = bytesOf(kept.key);
    if (bytes !== undefined) platform.media.restore({ ...kept, bytes });
  }
  platform.directory.restore(
    users,
    chats.map((chat) => ({ ...chat, members: new Set(chat.members), bots: new Set(chat.bots) })),
  );
  const shown = new Map(
    cards.map((card) => [card.messageId, platform.cards.view(platform.cards.restore(card))]),
  );
  for (const message of messages) {
    const card = shown.get(message.messageId);
    platform.messages.restore(card === undefined ? message : { ...message, card });
  }
  work.restore(keptWork);
}
