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
}

interface Searcher {
  caller: ApiCaller;
  appId: string;
}

const ListedMessage = Type.Object({
  message_id: Type.String(),
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
}

async function* messagesOf(
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
async function threadOf(caller: ApiCaller, messageId: string, callOptions?: CallOptions): Promise<string | undefined> {
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

/** Texts in a content, whatever kind of message it is of. */
function textsIn(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(textsIn);
  return Object.entries(objectOf(value) ?? {}).flatMap(([name, inner]) => {
    if (typeof inner !== "string") return textsIn(inner);
    return name === "text" || name === "title" ? [inner] : [];
  });
}

/** The beginning of what a content says, without its marks: the platform shows Markdown in a form of its own. */
function markOf(content: string): string {
  const letters = textsIn(parsedObject(content))
    .join("")
    .replaceAll(/[^\p{L}\p{N}]/gu, "");
  return letters.slice(0, markLength);
}

/**
 * Whether a message answers the one in question. In a thread the platform names the first message as the parent of
 * all others ("Reply message"), so there an answer is known by what it says.
 */
function createRecogniser(request: FindReplyRequest, threadId: string): (message: ListedMessage) => boolean {
  const marks = new Set(contentsOf(request.text ?? "").map(({ content }) => markOf(content)));
  marks.delete("");
  return ({ parent_id: parentId, body }) => {
    if (parentId === request.messageId) return true;
    return threadId !== "" && marks.has(markOf(body?.content ?? ""));
  };
}

/** Looks for the app's answer to a message; newest first, at most 500 messages back. */
export async function findReply(
  { caller, appId }: Searcher,
  request: FindReplyRequest,
  callOptions?: CallOptions,
): Promise<string | undefined> {
  const { messageId, sinceMs } = request;
  let missing = request.text === undefined ? 1 : contentsOf(request.text).length;
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
