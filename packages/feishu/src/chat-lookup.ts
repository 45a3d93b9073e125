import { parserOf } from "@larkline/protocol";
import { Type } from "typebox";
import type { ApiCaller, CallOptions } from "./api-caller.ts";
import { FeishuError } from "./error.ts";
import { pathId } from "./platform-id.ts";

/** What kind of chat this is. */
export interface ChatFacts {
  /** Absent when the bot is not a member: the platform then says no more than the name. */
  mode?: "p2p" | "group" | "topic";
  /** Of a normal group: whether its messages open threads. */
  groupMessageType?: "chat" | "thread";
  name: string;
  /** Holds people of other tenants. */
  external: boolean;
  /** The chat still exists. */
  active: boolean;
  /** No bot but this one is a member. False when the platform does not say. */
  onlyBot: boolean;
}

const text = Type.Optional(Type.String());

const parseChat = parserOf(
  Type.Object({
    data: Type.Object({
      chat_mode: text,
      group_message_type: text,
      name: text,
      chat_status: text,
      external: Type.Optional(Type.Boolean()),
      bot_count: text,
    }),
  }),
);

const parseNames = parserOf(
  Type.Object({
    data: Type.Object({ users: Type.Optional(Type.Array(Type.Object({ user_id: text, name: text }))) }),
  }),
);

const parseUser = parserOf(Type.Object({ data: Type.Object({ user: Type.Optional(Type.Object({ name: text })) }) }));

function modeOf(mode: string | undefined): Pick<ChatFacts, "mode"> {
  return mode === "p2p" || mode === "group" || mode === "topic" ? { mode } : {};
}

function messageTypeOf(type: string | undefined): Pick<ChatFacts, "groupMessageType"> {
  return type === "chat" || type === "thread" ? { groupMessageType: type } : {};
}

export async function fetchChat(caller: ApiCaller, chatId: string, options?: CallOptions): Promise<ChatFacts> {
  const api = "im.chat.get";
  const path = { chat_id: pathId(api, chatId) };
  const { data } = await caller.call(
    { api, run: (client, sdkOptions) => client.im.v1.chat.get({ path }, sdkOptions), parse: parseChat },
    options,
  );
  return {
    ...modeOf(data.chat_mode),
    ...messageTypeOf(data.group_message_type),
    name: data.name ?? "",
    external: data.external ?? false,
    active: (data.chat_status ?? "normal") === "normal",
    onlyBot: data.chat_mode === "p2p" || data.bot_count === "1",
  };
}

/** "Get basic information of users": at most so many ids in one call. */
const maxBatch = 10;

type Names = Map<string, string>;

async function namesOfBatch(caller: ApiCaller, openIds: readonly string[], options?: CallOptions): Promise<Names> {
  const request = {
    method: "POST",
    url: "/open-apis/contact/v3/users/basic_batch",
    params: { user_id_type: "open_id" },
    data: { user_ids: openIds },
  };
  const { data } = await caller.call(
    {
      api: "contact.user.basicBatch",
      run: (client, sdkOptions) => client.request(request, sdkOptions),
      parse: parseNames,
    },
    options,
  );
  const names: Names = new Map();
  for (const { user_id: openId = "", name = "" } of data.users ?? []) if (name !== "") names.set(openId, name);
  return names;
}

async function nameOf(caller: ApiCaller, openId: string, options?: CallOptions): Promise<string> {
  const api = "contact.user.get";
  const payload = { path: { user_id: pathId(api, openId) }, params: { user_id_type: "open_id" as const } };
  const { data } = await caller.call(
    { api, run: (client, sdkOptions) => client.contact.v3.user.get(payload, sdkOptions), parse: parseUser },
    options,
  );
  return data.user?.name ?? "";
}

/** A refusal that stands: the right is missing, or the person is not visible. */
function isRefusal(error: unknown): boolean {
  return error instanceof FeishuError && !error.retryable && error.kind !== "cancelled";
}

async function unlessRefused<T>(ask: () => Promise<T>, otherwise: T): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if (isRefusal(error)) return otherwise;
    throw error;
  }
}

/**
 * Names by open_id, as far as the platform tells them. The batch call needs a right of its own that
 * many apps lack; whom it does not name is asked for alone.
 */
export async function fetchUserNames(
  caller: ApiCaller,
  openIds: readonly string[],
  options?: CallOptions,
): Promise<Names> {
  const names: Names = new Map();
  const wanted = [...new Set(openIds)].map((openId) => pathId("contact.user.basicBatch", openId));
  for (let at = 0; at < wanted.length; at += maxBatch) {
    const batch = wanted.slice(at, at + maxBatch);
    const found = await unlessRefused(() => namesOfBatch(caller, batch, options), new Map<string, string>());
    for (const openId of batch) {
      const name = found.get(openId) ?? (await unlessRefused(() => nameOf(caller, openId, options), ""));
      if (name !== "") names.set(openId, name);
    }
  }
  return names;
}
