import {
  isChildSession,
  rootSessionOf,
  type SessionKey,
  type InboundMessage,
} from "@larkline/protocol";
import type { Message } from "@larkline/protocol/content";
import { mastersOf, type RedisConnection, oldestMembers } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, defaultNamespace, type Keyspace, type StoreOptions } from "./keys.ts";
import { approvalRequester, inboundFrom, messageFrom } from "./stored.ts";

/**
 * What is stored of a history. The messages of a session are numbered from 0; one that comes back after
 * it was removed continues with higher numbers than it ever had, so a number never means two messages.
 */
export interface StoredHistory {
  /** Number of the first of `messages`: that which was asked for, or the first that is still there. */
  first: number;
  messages: Message[];
  /** Who has written in the session, by id, and in what kind of chat: `p2p`, `group` or `api`. */
  people: Readonly<Record<string, string>>;
}

/** A session and when its last turn ended, epoch ms. */
export interface EndedSession {
  session: SessionKey;
  endedAtMs: number;
}

/**
 * `removed`: nothing is left of it but the remembered ids of its messages. `in_use`: it is being answered,
 * or something is still to be sent or decided. `changed`: it is not as the caller believed.
 */
export type RemovalResult = "removed" | "in_use" | "changed";

export interface Redaction {
  person: string;
  numbers: readonly number[];
  marker: Message;
}

const scanPage = 500;

const readHistory = script("read-history");
const renumber = script("renumber");
const trim = script("trim");
const trimChildren = script("trim-children");
const remove = script("remove");
const redact = script("redact");
const forgetPerson = script("forget-person");
const adopt = script("adopt");

/** Each is some thirty commands of one script. */
const childrenAtOnce = 20;

/** When a session is asked again that is in use although it has been silent for so long. */
const busyMs = 3_600_000;

/** Removes stored conversations that are no longer needed; those in use stay. */
export class SessionRetention {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #namespace: string;

  constructor({ redis, namespace = defaultNamespace }: StoreOptions) {
    this.#redis = redis;
    this.#namespace = namespace;
    this.#keys = createKeyspace(namespace);
  }

  /** Sessions whose last turn ended before `beforeMs`, longest ago first. */
  async dormant(beforeMs: number, limit: number): Promise<SessionKey[]> {
    const indexes = this.#keys.cells().map(({ ended }) => ended);
    return await oldestMembers(this.#redis, indexes, { untilMs: beforeMs - 1, limit });
  }

  /** Sessions with a turn that ended after they were last archived and bounded, see `trim`, longest ago first. */
  async unarchived(limit: number): Promise<EndedSession[]> {
    const lists = await Promise.all(
      this.#keys
        .cells()
        .map(
          async ({ untended }) =>
            await this.#redis.zrange(untended, "0", String(limit - 1), "WITHSCORES"),
        ),
    );
    const ended = lists.flatMap((list) =>
      list.flatMap((session, at) =>
        at % 2 === 0 ? [{ session, endedAtMs: Number(list[at + 1]) }] : [],
      ),
    );
    return ended.sort((one, other) => one.endedAtMs - other.endedAtMs).slice(0, limit);
  }

  /** How many sessions are not archived and bounded yet. */
  async unarchivedCount(): Promise<number> {
    const counts = await Promise.all(
      this.#keys.cells().map(async ({ untended }) => await this.#redis.zcard(untended)),
    );
    return counts.reduce((sum, count) => sum + count, 0);
  }

  /** At most `limit` messages from the number `from` on. */
  async read(session: SessionKey, from: number, limit: number): Promise<StoredHistory> {
    const reply = await runScript(this.#redis, readHistory, this.#keys.session(session), {
      from,
      most: limit,
    });
    const [first, texts, people] = reply as [number, string[], string[]]; // shape fixed by the script
    const pairs = people.flatMap((person, at) =>
      at % 2 === 0 ? [[person, people[at + 1] ?? ""]] : [],
    );
    return { first, messages: texts.map(messageFrom), people: Object.fromEntries(pairs) };
  }

  /** Counts the messages of a session from `first` on, if that is higher than they are counted now. */
  async renumber(session: SessionKey, first: number): Promise<void> {
    await runScript(this.#redis, renumber, this.#keys.session(session), { first });
  }

  /**
   * Drops the oldest messages that no claim hands out any more, but for the last `keep` of them. Only
   * messages below the number `archived` go, where it is given. With `endedAtMs` the session counts as tended,
   * unless another turn has ended since. Returns how many went.
   */
  async trim(
    session: SessionKey,
    {
      keep,
      archived = "",
      endedAtMs = "",
    }: { keep: number; archived?: number | ""; endedAtMs?: number | "" },
  ): Promise<number> {
    const values = { sid: session, keep, archived, endedAtMs };
    return Number(await runScript(this.#redis, trim, this.#keys.session(session), values));
  }

  /**
   * Removes a session whose last turn ended before `beforeMs`; with `archived` only if all of its messages
   * have lower numbers. With `stays: "owner"` it still belongs to its owner and is still `dormant`, until it is expired
   * once more: for what is kept elsewhere under its name and must go first.
   */
  async expire(
    session: SessionKey,
    {
      beforeMs,
      archived = "",
      stays = "",
    }: { beforeMs: number; archived?: number | ""; stays?: "owner" | "" },
  ): Promise<RemovalResult> {
    return await this.#remove(session, { beforeMs, length: archived, stays });
  }

  /**
   * Removes a session whatever its age, with replies that are not sent yet, if all of its messages have
   * numbers lower than `length`. `in_use` while it is being answered.
   */
  async erase(session: SessionKey, length: number): Promise<RemovalResult> {
    for (const each of [session, ...(await this.#below(session))]) {
      await this.#forgetApprovals(
        await this.#redis.zrange(this.#keys.session(each).kept, "0", "-1"),
      );
    }
    return await this.#remove(session, { beforeMs: "", length, stays: "" });
  }

  /** All children of a root, also those that have ended. */
  async #below(session: SessionKey): Promise<SessionKey[]> {
    if (isChildSession(session)) return [];
    const { children, endedChildren } = this.#keys.session(session);
    const working = (await this.#redis.hkeys(children)).filter(isChildSession);
    return [...working, ...(await this.#redis.zrange(endedChildren, "0", "-1"))];
  }

  /** Sessions with children of which some have ended before `beforeMs`, longest ago first. */
  async withOldChildren(beforeMs: number, limit: number): Promise<SessionKey[]> {
    const indexes = this.#keys.cells().map(({ childRoots }) => childRoots);
    return await oldestMembers(this.#redis, indexes, { untilMs: beforeMs - 1, limit });
  }

  /** Removes children of a session that have ended before `beforeMs`, some at a time. Returns how many went. */
  async trimChildren(root: SessionKey, beforeMs: number): Promise<number> {
    const values = { sid: root, beforeMs, most: childrenAtOnce };
    const keys = this.#keys.session(root);
    let gone = 0;
    for (;;) {
      const now = Number(await runScript(this.#redis, trimChildren, keys, values));
      gone += now;
      if (now < childrenAtOnce) return gone;
    }
  }

  /** By which buttons find their session; first, since nothing names them once the approvals are gone. */
  async #forgetApprovals(ids: readonly string[]): Promise<void> {
    await Promise.all(
      ids.map(async (id) => await this.#redis.unlink(this.#keys.approvalSessionOf(id))),
    );
  }

  async #remove(
    session: SessionKey,
    values: { beforeMs: number | ""; length: number | ""; stays: "owner" | "" },
  ): Promise<RemovalResult> {
    const all = { sid: session, busyMs, ...values };
    const reply = await runScript(this.#redis, remove, this.#keys.session(session), all);
    return reply as RemovalResult; // the script answers nothing else
  }

  /** Finds sessions that older versions left without a note of their end, and counts them as ended now. Returns how many. */
  async adopt(signal: AbortSignal): Promise<number> {
    let adopted = 0;
    for await (const session of storedSessions(this.#redis, this.#namespace, signal)) {
      if (isChildSession(session)) continue; // its root knows of it
      const keys = this.#keys.session(session);
      adopted += Number(await runScript(this.#redis, adopt, keys, { sid: session }));
    }
    return adopted;
  }

  /** Sessions of an app in which the person has written. */
  async sessionsOf(app: string, person: string): Promise<SessionKey[]> {
    const from = `[${person}|${app}.`;
    const lists = await Promise.all(
      this.#keys
        .cells()
        .map(
          async ({ people }) => await this.#redis.zrangebylex(people, from, `${from}\u{10ffff}`),
        ),
    );
    // A person's id may have a bar in it, a session's name has none.
    const found = lists
      .flat()
      .map((member) => [member.slice(0, member.lastIndexOf("|")), member] as const);
    return found.flatMap(([who, member]) =>
      who === person ? [member.slice(person.length + 1)] : [],
    );
  }

  /** Sessions of one chat, found by looking through all: for those that no index knows. */
  async sessionsOfChat(app: string, chatId: string): Promise<SessionKey[]> {
    const chat = `${app}.${chatId}`;
    const found = new Set<SessionKey>();
    for await (const session of storedSessions(this.#redis, this.#namespace)) {
      const root = rootSessionOf(session);
      if (root === chat || root.startsWith(`${chat}.`)) found.add(session);
    }
    return [...found];
  }

  /**
   * Puts `marker` in place of the messages with these numbers, takes the summary of the older messages,
   * the events, and the settled approvals of that person away. Returns how many messages were replaced.
   */
  async redact(session: SessionKey, { person, numbers, marker }: Redaction): Promise<number> {
    const keys = this.#keys.session(session);
    const ids = await this.#redis.zrange(keys.kept, "0", "-1");
    const theirs: string[] = [];
    for (const id of ids) {
      const text = await this.#redis.hget(keys.approvalOf(id), "approval");
      if (text !== null && approvalRequester(text) === person) theirs.push(id);
    }
    const states = await Promise.all(
      theirs.map(async (id) => await this.#redis.hget(keys.saidOf(id), "state")),
    );
    await this.#forgetApprovals(theirs.filter((_, at) => (states[at] ?? "pending") !== "pending"));
    const reply = await runScript(this.#redis, redact, keys, {
      sid: session,
      marker: JSON.stringify(marker),
      numbers: JSON.stringify(numbers),
      theirs: JSON.stringify(theirs),
    });
    return Number(reply);
  }

  /**
   * The last step: the session is not found under the person any more. False, and nothing happens, when
   * there are messages with the number `length` or higher, or one of the person's waits.
   */
  async forget(session: SessionKey, person: string, length: number): Promise<boolean> {
    const values = { sid: session, person, known: length };
    return (await runScript(this.#redis, forgetPerson, this.#keys.session(session), values)) === 1;
  }
}

/**
 * Removes messages that wait behind a question whether they are answered at all, of all sessions. One that cannot be
 * read is meant by no person. Returns how many were removed.
 */
export async function removeParkedMessages(
  { redis, namespace = defaultNamespace }: StoreOptions,
  isMeant: (message: InboundMessage) => boolean,
): Promise<number> {
  let removed = 0;
  for (const node of mastersOf(redis)) {
    let cursor = "0";
    do {
      const [next, found] = await node.scan(
        cursor,
        "MATCH",
        `{${namespace}:*}:parked:*`,
        "COUNT",
        scanPage,
      );
      cursor = next;
      for (const key of found) {
        const text = await redis.get(key);
        const message = text === null ? undefined : readable(text);
        if (message !== undefined && isMeant(message)) removed += await redis.unlink(key);
      }
    } while (cursor !== "0");
  }
  return removed;
}

function readable(text: string): InboundMessage | undefined {
  try {
    return inboundFrom(text);
  } catch {
    return undefined;
  }
}

/** All sessions that are stored, each at least once. */
async function* storedSessions(
  redis: RedisConnection,
  namespace: string,
  signal?: AbortSignal,
): AsyncIterable<SessionKey> {
  const keys = createKeyspace(namespace);
  const name = /:\d+\}:s:(.+)$/;
  for (const node of mastersOf(redis)) {
    let cursor = "0";
    do {
      signal?.throwIfAborted();
      const [next, found] = await node.scan(
        cursor,
        "MATCH",
        `{${namespace}:*}:s:*`,
        "COUNT",
        scanPage,
      );
      cursor = next;
      for (const key of found) {
        const session = name.exec(key)?.[1];
        if (session !== undefined && key === keys.session(session).session) yield session;
      }
    } while (cursor !== "0");
  }
}
