import type { SimApp } from "./apps.ts";
import { type CardEntity, cardText, isShared, isDowngrade } from "./card-store.ts";
import { pushAll, messageEvent } from "./events.ts";
import { type SimChat, opensThreads } from "./directory.ts";
import type { MediaKind, StoredMedia } from "./media.ts";
import {
  messageView,
  renderContent,
  type SimMessage,
  type MessageChange,
  type NewMessage,
  type RenderedContent,
  cardContent,
} from "./message-store.ts";
import {
  type Platform,
  pathMessage,
  forwardedMessages,
  liveMessage,
  mentionLookup,
  memberChat,
  openThread,
} from "./platform.ts";
import { historyOfPerson, messageOfPerson, sendAsPerson, replyAsPerson } from "./work/talk.ts";
import { type ApiRoute, personTalkScopes, type ApiCallContext } from "./api-route.ts";
import { contentRefusal, refusing, refusedOnSend, checkCard } from "./card-validator.ts";
import {
  type JsonObject,
  success,
  stringField,
  PlatformError,
  pageOf,
  fieldError,
  optionalStringField,
  newId,
  booleanField,
  parseJsonObject,
  isJsonObject,
} from "./open-api.ts";

const maximumEdits = 20;
const patchLifetimeMs = 14 * 86_400_000;
const patchesPerSecond = 5;
const path = "/open-apis/im/v1/messages/:message_id";

/** Reading, editing, updating and recalling messages. */
export function messageRoutes(platform: Platform): ApiRoute[] {
  return [
    { method: "GET", path, ...personTalkScopes.history, handle: (call) => read(platform, call) },
    { method: "PUT", path, handle: (call) => edit(platform, call) },
    { method: "PATCH", path, handle: (call) => patchCard(platform, call) },
    { method: "DELETE", path, handle: (call) => recall(platform, call) },
    {
      method: "GET",
      path: "/open-apis/im/v1/messages",
      ...personTalkScopes.history,
      handle: (call) =>
        call.person === undefined
          ? list(platform, call)
          : historyOfPerson(platform, call, call.person.openId),
    },
  ];
}

function read(platform: Platform, call: ApiCallContext): JsonObject {
  const message =
    call.person === undefined
      ? pathMessage(platform, call).message
      : messageOfPerson(platform, call, call.person.openId);
  const held = message.recalled ? [] : forwardedMessages(platform, message.messageId);
  return success({
    items: [message, ...held].map((item) => messageView(item, call.app, { cards: cardForm(call) })),
  });
}

/** Text and posts of the caller, at most 20 times each (message update page). */
function edit(platform: Platform, call: ApiCallContext): JsonObject {
  const { message, chat } = liveMessage(platform, call);
  const messageType = stringField(call.body, "msg_type");
  if (!["text", "post"].includes(messageType) || !["text", "post"].includes(message.messageType)) {
    throw new PlatformError(230054, "This operation is not supported for this message type.");
  }
  if (message.senderId !== call.app.appId) {
    throw new PlatformError(230071, "The operator is not the message sender.");
  }
  if (message.edits >= maximumEdits) {
    throw new PlatformError(230072, "The message has reached the number of edits limit.");
  }
  const rendered = renderContent(
    messageType,
    stringField(call.body, "content"),
    mentionLookup(platform, chat),
  );
  return changed(platform, call, {
    message,
    change: { ...rendered, messageType, edits: message.edits + 1 },
  });
}

/** Cards of the caller: shared before and after, up to 14 days old, 5 a second each (card patch page). */
function patchCard(platform: Platform, call: ApiCallContext): JsonObject {
  const { message } = liveMessage(platform, call);
  if (message.messageType !== "interactive") {
    throw new PlatformError(230001, "This message is NOT a card.");
  }
  if (message.senderId !== call.app.appId) {
    throw new PlatformError(230027, "Lack of necessary permissions.");
  }
  if (platform.clock.now() - message.createdAt > patchLifetimeMs) {
    throw new PlatformError(230031, "The message is too old to update.");
  }
  platform.limiter.checkBusiness(`patch ${message.messageId}`, patchesPerSecond);
  const { entity, json, content } = patchedCard(
    platform,
    message,
    stringField(call.body, "content"),
  );
  platform.messages.change(message.messageId, { content, patches: message.patches + 1 });
  platform.cards.change(entity, json, { enable: true });
  return success({});
}

function recall(platform: Platform, call: ApiCallContext): JsonObject {
  const { message } = liveMessage(platform, call);
  if (message.senderId !== call.app.appId) {
    throw new PlatformError(230026, "No permission to recall this message.");
  }
  changed(platform, call, { message, change: { recalled: true } });
  return success({});
}

function changed(
  platform: Platform,
  call: ApiCallContext,
  { message, change }: { message: SimMessage; change: MessageChange },
): JsonObject {
  const updated =
    platform.messages.change(message.messageId, { ...change, updatedAt: platform.clock.now() }) ??
    message;
  platform.announce(updated);
  return success(messageView(updated, call.app));
}

/** History of a chat or a thread; start and end are seconds (message list page). */
function list(platform: Platform, call: ApiCallContext): JsonObject {
  const found = containerMessages(platform, call);
  const [start, end] = [
    secondsOf(call, "start_time", 0),
    secondsOf(call, "end_time", Number.POSITIVE_INFINITY),
  ];
  const ordered = found
    .filter(({ createdAt }) => createdAt >= start * 1000 && createdAt <= end * 1000)
    .toSorted((left, right) => left.createdAt - right.createdAt);
  if (call.query.get("sort_type") === "ByCreateTimeDesc") ordered.reverse();
  const { items, ...page } = pageOf(ordered, call.query, 50);
  const options = { cards: cardForm(call), recalledText: "This message was recalled" };
  return success({
    ...page,
    items: items.map((message) => messageView(message, call.app, options)),
  });
}

function containerMessages(platform: Platform, call: ApiCallContext): readonly SimMessage[] {
  const id = call.query.get("container_id") ?? "";
  const type = call.query.get("container_id_type");
  if (type === "chat") {
    const chat = memberChat(platform, call.app, id);
    return platform.messages
      .inChat(chat.chatId)
      .filter((message) => !insideThread(chat, message) && message.hidden !== true);
  }
  if (type !== "thread") throw fieldError("container_id_type", "must be chat or thread");
  if (call.query.has("start_time") || call.query.has("end_time")) {
    throw new PlatformError(
      230001,
      "Your request contains an invalid request parameter, ext=thread has no time filter.",
    );
  }
  return [...platform.directory.chats.values()]
    .filter((chat) => chat.bots.has(call.app.appId))
    .flatMap((chat) => platform.messages.inChat(chat.chatId))
    .filter((message) => message.threadId === id && message.hidden !== true);
}

function cardForm(call: ApiCallContext): "received" | "sent" {
  return call.query.get("card_msg_content_type") === "user_card_content" ? "sent" : "received";
}

/** The history of an ordinary group holds of each thread only its first message (message list page). */
function insideThread(chat: SimChat, { rootId, threadId }: SimMessage): boolean {
  return !chat.topic && rootId !== undefined && threadId !== undefined;
}

function secondsOf(call: ApiCallContext, name: string, missing: number): number {
  const value = call.query.get(name);
  if (value === null || value === "") return missing;
  if (!/^\d{1,10}$/.test(value)) throw fieldError(name, "must be a time in seconds");
  return Number(value);
}

const perTargetPerSecond = 5;

/** Send and reply (message create and reply pages). */
export function sendRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "POST",
      path: "/open-apis/im/v1/messages",
      ...personTalkScopes.send,
      handle: (call) =>
        call.person === undefined
          ? sendOnce(platform, call, () => sendTarget(platform, call))
          : sendAsPerson(platform, call, call.person.openId),
    },
    {
      method: "POST",
      path: "/open-apis/im/v1/messages/:message_id/reply",
      ...personTalkScopes.send,
      handle: (call) =>
        call.person === undefined
          ? sendOnce(platform, call, () => replyTarget(platform, call))
          : replyAsPerson(platform, call, call.person.openId),
    },
  ];
}

interface Target {
  chat: SimChat;
  links: Pick<NewMessage, "rootId" | "parentId" | "threadId">;
}

function sendOnce(platform: Platform, call: ApiCallContext, findTarget: () => Target): JsonObject {
  const uuid = optionalStringField(call.body, "uuid");
  const earlier = uuid === undefined ? undefined : platform.uuids.find(call.app.appId, uuid);
  const original = earlier === undefined ? undefined : platform.messages.get(earlier);
  if (original !== undefined) return success(messageView(original, call.app));
  const target = findTarget();
  const message = addMessage(platform, call, { ...target, uuid });
  if (uuid !== undefined) platform.uuids.remember(call.app.appId, uuid, message.messageId);
  platform.announce(message);
  tellMentionedBots(platform, target.chat, { sender: call.app, message });
  return success(messageView(message, call.app));
}

function addMessage(
  platform: Platform,
  call: ApiCallContext,
  target: Target & { uuid: string | undefined },
): SimMessage {
  const { chat, links, uuid } = target;
  checkRefusals(platform, chat, links.parentId);
  const messageType = stringField(call.body, "msg_type");
  const content = stringField(call.body, "content");
  const card =
    messageType === "interactive" ? sendableCard(platform, call.app, content) : undefined;
  const rendered =
    card?.fields ?? renderContent(messageType, content, mentionLookup(platform, chat));
  if (card === undefined) checkMediaKeys(platform, call.app, { messageType, content });
  const [person] = chat.members;
  const limited = chat.type === "p2p" ? `user ${person ?? ""}` : `chat ${chat.chatId}`;
  platform.limiter.checkBusiness(limited, perTargetPerSecond);
  const message = platform.messages.add({
    chatId: chat.chatId,
    senderType: "app",
    senderId: call.app.appId,
    messageType,
    ...rendered,
    ...links,
    ...(uuid === undefined ? {} : { uuid }),
    createdAt: platform.clock.now(),
  });
  openThread(platform, message);
  if (card !== undefined) attachCard(platform, card, message.messageId);
  return message;
}

function sendTarget(platform: Platform, call: ApiCallContext): Target {
  const chat = receivingChat(platform, call);
  return { chat, links: opensThreads(chat) ? { threadId: newId("omt_") } : {} };
}

const receiveIdTypes = ["open_id", "union_id", "user_id", "email", "chat_id"];

function receivingChat(platform: Platform, call: ApiCallContext): SimChat {
  const type = call.query.get("receive_id_type") ?? "open_id";
  if (!receiveIdTypes.includes(type)) {
    throw fieldError("receive_id_type", `must be one of ${receiveIdTypes.join(", ")}`);
  }
  const id = stringField(call.body, "receive_id");
  if (type === "chat_id") {
    if (!/^oc_[\w-]+$/.test(id)) {
      throw new PlatformError(230034, `The receive_id is invalid: ${id}`);
    }
    return memberChat(platform, call.app, id);
  }
  return platform.directory.p2pChat(personOf(platform, type, id), call.app.appId);
}

function personOf(platform: Platform, type: string, id: string): string {
  if (type === "open_id") {
    if (!/^ou_[\w-]+$/.test(id)) {
      throw new PlatformError(99992351, "The request you send is not a valid {open_id}.");
    }
    if (!platform.directory.users.has(id)) throw new PlatformError(99992361, "open_id cross app");
    return id;
  }
  for (const user of platform.directory.users.values()) {
    if (
      (type === "union_id" && user.unionId === id) ||
      (type === "user_id" && user.userId === id)
    ) {
      return user.openId;
    }
  }
  throw new PlatformError(230034, `The receive_id is invalid: ${id}`);
}

/** A reply to a thread's message stays in the thread; in a thread root and parent are its first message. */
function replyTarget(platform: Platform, call: ApiCallContext): Target {
  const { message, chat } = liveMessage(platform, call);
  const inThread = booleanField(call.body, "reply_in_thread");
  if (inThread && chat.type === "p2p") {
    throw new PlatformError(230071, "The chat does not support reply in thread.");
  }
  const threadId = message.threadId ?? (inThread || opensThreads(chat) ? newId("omt_") : undefined);
  const rootId = message.rootId ?? message.messageId;
  if (threadId === undefined) return { chat, links: { rootId, parentId: message.messageId } };
  return { chat, links: { rootId, parentId: message.messageId, threadId } };
}

/** What the platform says with the codes that a test may ask for (error codes of the message create and reply pages). */
const refusalTexts: Readonly<Record<number, string>> = {
  230006: "Bot ability is not activated.",
  230020: "This operation triggers the frequency limit.",
  230013: "Bot has NO availability to this user.",
  230018: "These operations are NOT allowed at current group settings.",
  230019: "The topic does NOT exist.",
  230022: "The content of the message contains sensitive information.",
  230027: "Lack of necessary permissions.",
  230028: "The messages do NOT pass DLP detection.",
  230029: "User has resigned.",
  230035: "Send Message Permission deny.",
  230036: "Tenant crypt key has been deleted.",
  230038: "Cross tenant p2p chat operate forbid.",
  230050: "The message is invisible to the operator.",
  230053: "The user has stopped the bot from sending messages.",
  230071: "The chat does not support reply in thread.",
  230072: "The aggregated message does NOT support reply.",
  230073: "Messages are not supported in secret chats.",
  230111: "The message is about to self-destruct.",
  232009: "Your request specifies a chat which has already been dissolved.",
};

/** Refuses what a test switched off: sends to the chat or its person, or replies to the message. */
function checkRefusals(platform: Platform, chat: SimChat, repliedTo: string | undefined): void {
  const people = chat.type === "p2p" ? [...chat.members] : [];
  for (const target of [chat.chatId, ...people, repliedTo ?? ""]) {
    const refusal = platform.sendRefusals.get(target);
    if (refusal === undefined) continue;
    refusal.left -= 1;
    if (refusal.left <= 0) platform.sendRefusals.delete(target);
    throw new PlatformError(refusal.code, refusalTexts[refusal.code] ?? "The message is refused.");
  }
}

/** Images and files to send must be uploads of the caller, of the type that the message needs. */
function checkMediaKeys(
  platform: Platform,
  app: SimApp,
  message: { messageType: string; content: string },
): void {
  const parsed = parseJsonObject(message.content) ?? {};
  if (message.messageType === "post") return checkPost({ platform, app }, parsed);
  if (message.messageType === "sticker") {
    if (platform.media.get(String(parsed.file_key)) === undefined) throw invalidKey("file_key");
    return;
  }
  if (message.messageType === "image") own({ platform, app }, "image", parsed);
  if (!["file", "audio", "media"].includes(message.messageType)) return;
  const { fileType } = own({ platform, app }, "file", parsed);
  if (messageTypeFor(fileType) !== message.messageType) {
    throw new PlatformError(
      230055,
      "The type of file upload does not match the type of message being sent.",
    );
  }
  if (message.messageType === "media" && parsed.image_key !== undefined) {
    own({ platform, app }, "image", parsed);
  }
}

interface Sender {
  platform: Platform;
  app: SimApp;
}

function own({ platform, app }: Sender, kind: MediaKind, element: JsonObject): StoredMedia {
  const field = kind === "image" ? "image_key" : "file_key";
  const key = element[field];
  const media = typeof key === "string" ? platform.media.get(key) : undefined;
  if (media === undefined || media.kind !== kind) throw invalidKey(field);
  if (media.ownerAppId !== app.appId) {
    throw new PlatformError(230017, "Bot is NOT the owner of the resource.");
  }
  return media;
}

function messageTypeFor(fileType: string | undefined): string {
  if (fileType === "opus") return "audio";
  return fileType === "mp4" ? "media" : "file";
}

function checkPost(sender: Sender, post: JsonObject): void {
  for (const element of elementsOf(post)) {
    if (element.tag === "img" || element.tag === "media") own(sender, "image", element);
    if (element.tag === "media") own(sender, "file", element);
  }
}

function elementsOf(post: JsonObject): JsonObject[] {
  const bodies = Object.values(post).filter(isJsonObject);
  const paragraphs = bodies.flatMap((body): unknown[] =>
    Array.isArray(body.content) ? body.content : [],
  );
  return paragraphs
    .flatMap((paragraph): unknown[] => (Array.isArray(paragraph) ? paragraph : []))
    .filter(isJsonObject);
}

function invalidKey(field: string): PlatformError {
  return new PlatformError(
    230001,
    `Your request contains an invalid request parameter, ext=invalid ${field}.`,
  );
}

const maximumCount = 3;
const maximumLength = 200;
const lifetimeMs = 600_000;

/** Suggested replies below a bot's newest message of a p2p chat (message push_follow_up page). */
export function followUpRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "POST",
      path: "/open-apis/im/v1/messages/:message_id/push_follow_up",
      handle: (call) => push(platform, call),
    },
  ];
}

/** The codes have a meaning of their own here. */
function push(platform: Platform, call: ApiCallContext): JsonObject {
  const { message, chat } = liveMessage(platform, call);
  const followUps = contents(call.body.follow_ups);
  if (chat.type !== "p2p") {
    throw new PlatformError(230003, "Follow-ups are supported in p2p chats only.");
  }
  const newest = platform.messages
    .inChat(chat.chatId)
    .findLast(({ senderId }) => senderId === call.app.appId);
  if (newest?.messageId !== message.messageId) {
    throw new PlatformError(230006, "The message is not the newest one of the bot.");
  }
  if (platform.clock.now() - message.createdAt > lifetimeMs) {
    throw new PlatformError(230002, "The message has expired.");
  }
  if (message.followUps !== undefined) {
    throw new PlatformError(230008, "The message has follow-ups already.");
  }
  const answered = platform.messages.change(message.messageId, { followUps });
  if (answered !== undefined) platform.announce(answered);
  return success({});
}

function contents(items: unknown): string[] {
  if (!Array.isArray(items) || items.length < 1 || items.length > maximumCount) {
    throw fieldError("follow_ups", `must hold 1 to ${maximumCount} items`);
  }
  return items.map((item: unknown) => {
    const content = isJsonObject(item) ? item.content : undefined;
    if (typeof content !== "string" || content === "" || content.length > maximumLength) {
      throw fieldError("follow_ups.content", `must be 1 to ${maximumLength} characters`);
    }
    return content;
  });
}

/** A bot's message reaches the bots that it mentions and that ask for other bots' messages; never its sender. */
function tellMentionedBots(
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

/** The card of a message to send: its fields, and the entity that the message will show. */
interface SendableCard {
  fields: RenderedContent & Pick<NewMessage, "card">;
  entity: CardEntity;
}

/** Reads card content to send: a reference to an entity of this app, sent once, or the card itself. */
function sendableCard(platform: Platform, app: SimApp, content: string): SendableCard {
  const parsed = cardContent(content);
  const entity =
    parsed.type === "card"
      ? referencedEntity(platform, app, parsed)
      : platform.cards.create({
          appId: app.appId,
          json: inlineCard(platform, parsed),
          named: false,
        });
  const card = platform.cards.view(entity);
  return { fields: { content, text: cardText(entity.json), mentions: [], card }, entity };
}

/** Puts the entity on the message. */
function attachCard(platform: Platform, { entity }: SendableCard, messageId: string): void {
  platform.cards.attach(entity, messageId);
  if (entity.named) entity.operations.push({ op: "send", code: 0, at: platform.clock.now() });
}

/** What PATCH puts on a message: a card in full, shared before and after. */
function patchedCard(
  platform: Platform,
  message: SimMessage,
  content: string,
): { entity: CardEntity; json: JsonObject; content: string } {
  const json = inlineCard(platform, cardContent(content));
  const entity = platform.cards.ofMessage(message.messageId);
  if (entity === undefined || !isShared(entity.json) || !isShared(json)) {
    throw new PlatformError(230001, "Only a card with update_multi true can be updated.");
  }
  if (isDowngrade(entity.json, json)) {
    throw contentRefusal(200830, "card schema V2 can not change to V1");
  }
  return { entity, json, content };
}

/** A card in full, checked. */
function inlineCard(platform: Platform, parsed: JsonObject): JsonObject {
  if (parsed.type === "template") throw contentRefusal(200380, "template is not existed");
  if (parsed.card_id !== undefined || isJsonObject(parsed.data)) {
    throw contentRefusal(
      200621,
      "parse card json err, please check whether the card json is correct",
    );
  }
  refusing(refusedOnSend, () => checkCard(parsed, platform.cards.facts));
  return parsed;
}

function referencedEntity(platform: Platform, app: SimApp, { data }: JsonObject): CardEntity {
  const cardId = isJsonObject(data) ? data.card_id : undefined;
  const entity = typeof cardId === "string" ? platform.cards.get(cardId) : undefined;
  if (
    entity === undefined ||
    entity.appId !== app.appId ||
    !entity.named ||
    platform.cards.isExpired(entity)
  ) {
    throw contentRefusal(11310, "cardid is invalid");
  }
  if (platform.cards.invalidOnce && entity.refusedSends === 0) {
    entity.refusedSends += 1;
    return refuseSend(platform, entity, "cardid is invalid");
  }
  if (entity.messageId !== undefined) {
    return refuseSend(platform, entity, "card entity can only be sent once");
  }
  return entity;
}

function refuseSend(platform: Platform, entity: CardEntity, reason: string): never {
  entity.operations.push({ op: "send", code: 230099, at: platform.clock.now() });
  throw contentRefusal(11310, reason);
}
