import { parserOf } from "@larkline/protocol";
import type { LookupCache } from "@larkline/store";
import { Type } from "typebox";
import type { ApiCaller, CallOptions } from "./api-caller.ts";
import { FeishuError } from "./error.ts";
import type { FeishuApi } from "./feishu-api.ts";

const parseGroups = parserOf(
  Type.Object({
    data: Type.Object({
      group_list: Type.Optional(Type.Array(Type.String())),
      page_token: Type.Optional(Type.String()),
      has_more: Type.Optional(Type.Boolean()),
    }),
  }),
);

/** What the platform gives at most in one answer. */
const pageSize = 1_000;
const maxPages = 20;
/** Groups with members of their own, and those that follow a rule. The default of the platform is not documented. */
const groupTypes = [1, 2];

const api = "contact.group.memberBelong";

async function* pagesOf(
  caller: ApiCaller,
  params: { member_id: string; group_type: number },
  callOptions?: CallOptions,
): AsyncIterable<string[]> {
  let pageToken = "";
  for (let page = 0; page < maxPages; page += 1) {
    const token = pageToken === "" ? {} : { page_token: pageToken };
    const payload = { params: { ...params, member_id_type: "open_id" as const, page_size: pageSize, ...token } };
    const { data } = await caller.call(
      { api, run: (client, options) => client.contact.v3.group.memberBelong(payload, options), parse: parseGroups },
      callOptions,
    );
    yield data.group_list ?? [];
    pageToken = data.page_token ?? "";
    if (data.has_more !== true || pageToken === "") return;
  }
  throw new FeishuError({ api, kind: "bad_request", code: 0, httpStatus: 200, reason: "more groups than can be read" });
}

/** "Query the user groups of a user". */
export async function fetchGroups(caller: ApiCaller, openId: string, callOptions?: CallOptions): Promise<string[]> {
  const groups = new Set<string>();
  for (const type of groupTypes) {
    for await (const page of pagesOf(caller, { member_id: openId, group_type: type }, callOptions)) {
      for (const group of page) groups.add(group);
    }
  }
  return [...groups];
}

export interface GroupLookupOptions {
  api: Pick<FeishuApi, "appId" | "groupsOf">;
  lookups: Pick<LookupCache, "get" | "set">;
  /** Deadline of one answer in ms, 2 s by default: somebody waits for a click to be answered. */
  timeoutMs?: number;
}

/** Knows the user groups of people. */
export interface GroupLookup {
  /**
   * Ids of the user groups that the person belongs to, at most five minutes old. Rejects when it cannot
   * know, with an error that says why; nobody may take that for "none".
   */
  groupsOf(openId: string): Promise<string[]>;
}

const cacheMs = 5 * 60_000;

const parseCached = parserOf(Type.Array(Type.String()));

function cached(text: string | undefined): string[] | undefined {
  if (text === undefined) return undefined;
  try {
    const parsed = parseCached(JSON.parse(text));
    return parsed.ok ? parsed.value : undefined;
  } catch {
    return undefined;
  }
}

/** Asks the platform, and remembers for all processes. A cache that fails costs a call, nothing else. */
export function createGroupLookup({ api: client, lookups, timeoutMs = 2_000 }: GroupLookupOptions): GroupLookup {
  const asking = new Map<string, Promise<string[]>>();

  const ask = async (openId: string): Promise<string[]> => {
    const key = `groups:${client.appId}:${openId}`;
    const known = cached(await lookups.get(key).catch(() => undefined));
    if (known !== undefined) return known;
    const groups = await client.groupsOf(openId, { signal: AbortSignal.timeout(timeoutMs), maxWaitMs: timeoutMs });
    await lookups.set(key, JSON.stringify(groups), cacheMs).catch(() => undefined);
    return groups;
  };

  return {
    groupsOf: async (openId) => {
      const running = asking.get(openId) ?? ask(openId).finally(() => asking.delete(openId));
      asking.set(openId, running);
      return [...(await running)];
    },
  };
}
