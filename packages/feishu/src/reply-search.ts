import { parserOf } from "@larkline/protocol";
import { Type, type Static } from "typebox";
import type { ApiCaller, CallOptions } from "./api-caller.ts";
import { FeishuError } from "./error.ts";
import { objectOf, parsedObject } from "./json-object.ts";
import { contentsOf } from "./outgoing-text.ts";
import { pathId } from "./platform-id.ts";

/** Which answer to look for, and where. */
export interface FindReplyRequest {
  chatId: string;
  /** The message that was to be answered. */
  messageId: string;
  /** Epoch ms; older messages are not looked at. */
  sinceMs: number;
  /** The text that was to be sent: when it takes several messages, all of them must be there. */
  text?: string;
  /** The card that was to be sent instead. */
  card?: Record<string, unknown>;
  /** The file that was to be sent instead; the platform may list it under another key. */
  file?: { key: string; name: string };
}

interface Searcher {
  caller: ApiCaller;
  appId: string;
}

const ListedMessage = Type.Object({
  message_id: Type.String(),
  msg_type: Type.Optional(Type.String()),
  parent_id: Type.Optional(Type.String()),
  thread_id: Type.Optional(Type.String()),
  create_time: Type.Optional(Type.String()),
  deleted: Type.Optional(Type.Boolean()),
  sender: Type.Optional(Type.Object({ id: Type.Optional(Type.String()), sender_type: Type.Optional(Type.String()) })),
  body: Type.Optional(Type.Object({ content: Type.Optional(Type.String()) })),
});
type ListedMessage = Static<typeof ListedMessage>;

const parseItems = parserOf(
  Type.Object({
    data: Type.Object({
      items: Type.Optional(Type.Array(ListedMessage)),
      has_more: Type.Optional(Type.Boolean()),
      page_token: Type.Optional(Type.String()),
    }),
  }),
);

const pageSize = 50;
const maxPages = 10;

interface Container {
  type: "chat" | "thread";
  id: string;
  sinceMs: number;
  /** Cards as the JSON that was sent, not as what a reader sees of them. */
  cardsAsSent?: boolean;
}

/** Newest first, at most 500. */
export async function* messagesOf(
  caller: ApiCaller,
  container: Container,
  callOptions?: CallOptions,
): AsyncIterable<ListedMessage> {
  let pageToken = "";
  for (let page = 0; page < maxPages; page += 1) {
    const { data } = await caller.call(
      {
        api: "im.message.list",
        run: (client, options) =>
          client.im.v1.message.list(
            {
              params: {
                container_id_type: container.type,
                container_id: container.id,
                sort_type: "ByCreateTimeDesc",
                page_size: pageSize,
                // The platform refuses time filters for threads; seconds.
                ...(container.type === "chat" ? { start_time: String(Math.floor(container.sinceMs / 1000)) } : {}),
                ...(pageToken === "" ? {} : { page_token: pageToken }),
                ...(container.cardsAsSent === true ? { card_msg_content_type: "user_card_content" } : {}),
              },
            },
            options,
          ),
        parse: parseItems,
      },
      callOptions,
    );
    yield* data.items ?? [];
    pageToken = data.page_token ?? "";
    if (data.has_more !== true || pageToken === "") return;
  }
}

/** The thread a message belongs to: answers inside a thread are missing from the chat's own list. */
export async function threadOf(
  caller: ApiCaller,
  messageId: string,
  callOptions?: CallOptions,
): Promise<string | undefined> {
  const api = "im.message.get";
  const path = { message_id: pathId(api, messageId) };
  try {
    const { data } = await caller.call(
      { api, run: (client, options) => client.im.v1.message.get({ path }, options), parse: parseItems },
      callOptions,
    );
    return data.items?.[0]?.thread_id;
  } catch (error) {
    // The message is gone; its answer may still stand in the chat.
    if (error instanceof FeishuError && error.kind === "target_gone") return undefined;
    throw error;
  }
}

function isOurs(message: ListedMessage, appId: string): boolean {
  return message.sender?.sender_type === "app" && message.sender.id === appId && message.deleted !== true;
}

/** So many letters and digits tell two answers apart. */
const markLength = 60;

/** Where texts stand in contents as they are sent and as they are listed, cards included. */
const textNames = new Set(["text", "title", "content"]);

/** Texts in a content, whatever kind of message it is of; the settings of a card hold none that it shows. */
function textsIn(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(textsIn);
  return Object.entries(objectOf(value) ?? {}).flatMap(([name, inner]) => {
    if (typeof inner !== "string") return name === "config" ? [] : textsIn(inner);
    return textNames.has(name) ? [inner] : [];
  });
}

/**
 * The beginning of what a content says, without its marks and the targets of its links: the platform
 * shows Markdown in a form of its own.
 */
function markOf(content: Record<string, unknown> | undefined): string {
  const said = textsIn(content)
    .join("")
    .replaceAll(/\]\([^()\s]*\)/g, "]");
  const letters = said.replaceAll(/[^\p{L}\p{N}]/gu, "");
  return (letters === "" ? said.replaceAll(/\s/g, "") : letters).slice(0, markLength);
}

function marksOf({ text, card, file }: FindReplyRequest): string[] {
  if (file !== undefined) return [file.key];
  if (card !== undefined) return [markOf(card)];
  return contentsOf(text ?? "").map(({ content }) => markOf(parsedObject(content)));
}

/** Cards, files, and everything that a text may have become. */
function kindOf(messageType: string | undefined): "interactive" | "file" | "text" {
  return messageType === "interactive" || messageType === "file" ? messageType : "text";
}

function isFile(content: Record<string, unknown> | undefined, { file }: FindReplyRequest): boolean {
  return file !== undefined && (content?.["file_key"] === file.key || content?.["file_name"] === file.name);
}

/**
 * Tells the messages that together are the answer in question, one at a time. Answered to the same
 * message is not enough: that may be a notice, or a card that made way for a text. And in a thread the
 * platform names the first message as the parent of all others ("Reply message").
 */
function createRecogniser(request: FindReplyRequest, threadId: string): (message: ListedMessage) => boolean {
  const missing = marksOf(request);
  const kind = request.card === undefined ? kindOf(request.file === undefined ? "text" : "file") : "interactive";
  const isAny = request.text === undefined && kind === "text";
  return ({ parent_id: parentId = "", msg_type: messageType, body }) => {
    if (isAny) return parentId === request.messageId;
    if (kindOf(messageType) !== kind) return false;
    // Without a parent it went to the chat, because the message could not be answered.
    if (parentId !== request.messageId && parentId !== "" && threadId === "") return false;
    const content = parsedObject(body?.content ?? "");
    const at = missing.indexOf(isFile(content, request) ? (request.file?.key ?? "") : markOf(content));
    if (at >= 0) missing.splice(at, 1);
    return at >= 0;
  };
}

/** Looks for the app's answer to a message; newest first, at most 500 messages back. */
export async function findReply(
  { caller, appId }: Searcher,
  request: FindReplyRequest,
  callOptions?: CallOptions,
): Promise<string | undefined> {
  const { messageId, sinceMs } = request;
  let missing = marksOf(request).length;
  const threadId = (await threadOf(caller, messageId, callOptions)) ?? "";
  const answers = createRecogniser(request, threadId);
  const container: Container =
    threadId === "" ? { type: "chat", id: request.chatId, sinceMs } : { type: "thread", id: threadId, sinceMs };
  for await (const message of messagesOf(caller, container, callOptions)) {
    if (Number(message.create_time ?? sinceMs) < sinceMs) return undefined;
    if (isOurs(message, appId) && answers(message)) missing -= 1;
    if (missing === 0) return message.message_id;
  }
  return undefined;
}
