import { type SimChat, opensThreads } from "../directory.ts";
import {
  type MessageStore,
  type SimMessage,
  messageView,
  renderContent,
} from "../message-store.ts";
import { type Platform, mentionLookup } from "../platform.ts";
import { actorOf, type WorkWorld } from "./world.ts";
import { type ApiRoute, personTalkScopes, type ApiCallContext } from "../api-route.ts";
import {
  PlatformError,
  type JsonObject,
  fieldError,
  pageOf,
  success,
  isJsonObject,
  stringField,
  newId,
  optionalStringField,
} from "../open-api.ts";

// What people see and say in chats, by their own token: their history, search, sending in their name, and people.

/** Search of messages, chats and people. */
export function talkRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "POST",
      path: "/open-apis/im/v1/messages/search",
      personScopes: ["search:message"],
      handle: (call) => searchMessages(platform, call),
    },
    {
      method: "GET",
      path: "/open-apis/im/v1/chats/search",
      ...personTalkScopes.chat,
      handle: (call) => searchChats(platform, call),
    },
    {
      method: "GET",
      path: "/open-apis/search/v1/user",
      personScopes: ["contact:user:search"],
      handle: (call) => searchPeople(platform, call),
    },
  ];
}

/** The chat, when the person is in it; else 230002, 232009 or 230034. */
function personsChat(platform: Platform, chatId: string, openId: string): SimChat {
  const chat = platform.directory.chats.get(chatId);
  if (chat === undefined) throw new PlatformError(230034, `The receive_id is invalid: ${chatId}`);
  if (chat.status !== "normal") {
    throw new PlatformError(
      232009,
      "Your request specifies a chat which has already been dissolved.",
    );
  }
  if (!chat.members.has(openId)) {
    throw new PlatformError(230002, "Bot/User can NOT be out of the chat.");
  }
  return chat;
}

function visibleIn(messages: MessageStore, chat: SimChat): SimMessage[] {
  return messages.inChat(chat.chatId).filter(({ recalled }) => !recalled);
}

/** History of a chat or thread as a person of it sees it. */
export function historyOfPerson(
  platform: Platform,
  call: ApiCallContext,
  openId: string,
): JsonObject {
  const id = call.query.get("container_id") ?? "";
  const type = call.query.get("container_id_type");
  if (type !== "chat" && type !== "thread") {
    throw fieldError("container_id_type", "must be chat or thread");
  }
  const seconds = (name: string, missing: number): number =>
    Number(call.query.get(name) || missing);
  const [start, end] = [
    seconds("start_time", 0) * 1_000,
    seconds("end_time", Number.MAX_SAFE_INTEGER) * 1_000,
  ];
  const chats = type === "chat" ? [personsChat(platform, id, openId)] : chatsOf(platform, openId);
  const external = chats.find((chat) => chat.external);
  if (type === "chat" && external !== undefined) {
    throw new PlatformError(231204, "The app is shared outside of the company.");
  }
  const found = chats
    .flatMap((chat) => visibleIn(platform.messages, chat))
    .filter(
      ({ threadId, createdAt }) =>
        (type === "chat" || threadId === id) && createdAt >= start && createdAt <= end,
    )
    .toSorted((left, right) => left.createdAt - right.createdAt);
  if (call.query.get("sort_type") === "ByCreateTimeDesc") found.reverse();
  const { items, ...page } = pageOf(found, call.query, 50);
  return success({ ...page, items: items.map((message) => messageView(message, call.app)) });
}

/** A message of a chat of the person. */
export function messageOfPerson(
  platform: Platform,
  call: ApiCallContext,
  openId: string,
): SimMessage {
  const message = platform.messages.get(call.params.message_id ?? "");
  if (message === undefined || message.recalled) {
    throw new PlatformError(230110, "The message does not exist or is deleted.");
  }
  personsChat(platform, message.chatId, openId);
  return message;
}

function chatsOf(platform: Platform, openId: string): SimChat[] {
  return [...platform.directory.chats.values()].filter(
    ({ members, status }) => status === "normal" && members.has(openId),
  );
}

/** Words in what the person may see. */
function searchMessages(platform: Platform, call: ApiCallContext): JsonObject {
  const filter = isJsonObject(call.body.filter) ? call.body.filter : {};
  const { from_ids: from, chat_ids: inChats, chat_type: type, time_range: range } = filter;
  const words = String(call.body.query ?? "").toLowerCase();
  const { start_time: start, end_time: end } = isJsonObject(range) ? range : {};
  const found = chatsOf(platform, actorOf(call))
    .filter(
      (chat) =>
        (!Array.isArray(inChats) || inChats.includes(chat.chatId)) &&
        (type === undefined || chat.type === type),
    )
    .flatMap((chat) => visibleIn(platform.messages, chat))
    .filter(
      ({ text, senderId, createdAt }) =>
        text.toLowerCase().includes(words) &&
        (!Array.isArray(from) || from.includes(senderId)) &&
        (typeof start !== "string" || createdAt >= Date.parse(start)) &&
        (typeof end !== "string" || createdAt <= Date.parse(end)),
    )
    .toSorted((left, right) => right.createdAt - left.createdAt);
  const { items, ...page } = pageOf(found, call.query, 50);
  return success({
    ...page,
    total: found.length,
    items: items.map(({ messageId, messageType, createdAt, chatId, senderId, threadId }) => ({
      id: messageId,
      meta_data: {
        message_id: messageId,
        type: messageType,
        create_time: String(createdAt),
        chat_id: chatId,
        from_id: senderId,
        ...(threadId === undefined ? {} : { thread_id: threadId }),
      },
    })),
  });
}

/** Groups of the person by words of their names. */
function searchChats(platform: Platform, call: ApiCallContext): JsonObject {
  const words = (call.query.get("query") ?? "").toLowerCase();
  const mine = chatsOf(platform, actorOf(call)).filter(
    ({ type, name }) => type === "group" && name.toLowerCase().includes(words),
  );
  const { items, ...page } = pageOf(mine, call.query, 100);
  const views = items.map(({ chatId, name, external, status, topic }) => ({
    chat_id: chatId,
    name,
    external,
    chat_status: status,
    chat_mode: topic ? "topic" : "group",
  }));
  return success({ ...page, items: views });
}

/** People of the company by name; a bot may not search. */
function searchPeople(platform: Platform, call: ApiCallContext): JsonObject {
  if (call.person === undefined) {
    throw new PlatformError(99991663, "Invalid access token for authorization.");
  }
  const words = stringField({ query: call.query.get("query") }, "query").toLowerCase();
  const { tenantKey } = call.person;
  const found = [...platform.directory.users.values()].filter(
    (user) => user.tenantKey === tenantKey && user.name.toLowerCase().includes(words),
  );
  const { items, ...page } = pageOf(found, call.query, 200);
  const users = items.map(({ openId, userId, name }) => ({
    open_id: openId,
    user_id: userId,
    name,
    department_ids: ["0"],
  }));
  return success({ ...page, users });
}

interface Spoken {
  chat: SimChat;
  links: Pick<SimMessage, "rootId" | "parentId" | "threadId">;
}

/** Sends to a chat or a person in the caller's name; across companies this is 230027. */
export function sendAsPerson(platform: Platform, call: ApiCallContext, openId: string): JsonObject {
  return spokenOnce(platform, call, openId, () => {
    const id = stringField(call.body, "receive_id");
    const chat =
      call.query.get("receive_id_type") === "chat_id"
        ? personsChat(platform, id, openId)
        : directChat(platform, openId, id);
    return { chat, links: opensThreads(chat) ? { threadId: newId("omt_") } : {} };
  });
}

/** Answers a message of a chat of the person, in their name. */
export function replyAsPerson(
  platform: Platform,
  call: ApiCallContext,
  openId: string,
): JsonObject {
  return spokenOnce(platform, call, openId, () => {
    const {
      messageId,
      chatId,
      threadId,
      rootId = messageId,
    } = messageOfPerson(platform, call, openId);
    const links = { rootId, parentId: messageId, ...(threadId === undefined ? {} : { threadId }) };
    return { chat: personsChat(platform, chatId, openId), links };
  });
}

/** The direct chat of two people, opened on first use. */
function directChat(platform: Platform, openId: string, other: string): SimChat {
  if (!platform.directory.users.has(other)) throw new PlatformError(99992361, "open_id cross app");
  const open = [...platform.directory.chats.values()].find(
    ({ type, members, bots }) =>
      type === "p2p" && bots.size === 0 && members.has(openId) && members.has(other),
  );
  if (open !== undefined) return open;
  const chat = platform.directory.addChat({ type: "p2p", members: [openId, other] });
  chat.bots.clear();
  return chat;
}

function spokenOnce(
  platform: Platform,
  call: ApiCallContext,
  openId: string,
  place: () => Spoken,
): JsonObject {
  const uuid = optionalStringField(call.body, "uuid");
  const caller = `${call.app.appId} ${openId}`;
  const earlier = uuid === undefined ? undefined : platform.uuids.find(caller, uuid);
  const original = earlier === undefined ? undefined : platform.messages.get(earlier);
  if (original !== undefined) return success(messageView(original, call.app));
  const { chat, links } = place();
  if (chat.external) throw new PlatformError(230027, "Lack of necessary permissions.");
  const messageType = stringField(call.body, "msg_type");
  if (messageType !== "text" && messageType !== "post") {
    throw new PlatformError(230054, "not supported in a person's name");
  }
  const rendered = renderContent(
    messageType,
    stringField(call.body, "content"),
    mentionLookup(platform, chat),
  );
  platform.limiter.checkBusiness(`chat ${chat.chatId}`, 5);
  const message = platform.messages.add({
    chatId: chat.chatId,
    senderType: "user",
    senderId: openId,
    messageType,
    ...rendered,
    ...links,
    ...(uuid === undefined ? {} : { uuid }),
    createdAt: platform.clock.now(),
  });
  if (uuid !== undefined) platform.uuids.remember(caller, uuid, message.messageId);
  worldOf(platform).record(call, "message.send", rendered.text);
  platform.announce(message);
  return success(messageView(message, call.app));
}

function worldOf(platform: Platform): WorkWorld {
  return platform.world;
}
