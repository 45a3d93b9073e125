import type { Clock } from "@larkline/protocol/clock";
import type { ApiCallContext } from "../api-route.ts";
import { type JsonObject, PlatformError } from "../open-api.ts";

// What documents, tables, calendars and tasks have in common: who may see and change an object, keys of writes with
// their windows, and a record of every change by what it says.

/** A change that took effect. */
export interface WorkChange {
  /** Such as `document.create`. */
  kind: string;
  /** Open id of the person, or the app's id. */
  by: string;
  /** Its content: changes are counted by what they say, never by calls. */
  content: string;
  at: number;
}

/** How a repeated key is answered: with the first answer, or with the operation's code for a conflict. */
export type RepeatedKey = "same_result" | "conflict";

export interface WorldControls {
  /** Every change since the start, oldest first. */
  readonly changes: readonly WorkChange[];
  /**
   * Gives a person (open id), the members of a chat or an app (its id) the right to see an object, to change it, too, or
   * also to share it.
   */
  share(objectId: string, who: string, right: Right): void;
  /** Takes the rights back. */
  unshare(objectId: string, who: string): void;
  setRepeatedKey(how: RepeatedKey): void;
  /** Whether a person (open id) or an app (its id) may see an object, or change it. Default `view`. */
  may(who: string, objectId: string, right?: Right): boolean;
}

/** Each holds those before it. */
const ranks = ["view", "edit", "full_access"] as const;
export type Right = (typeof ranks)[number];

const maxChanges = 20_000;

export class WorkWorld implements WorldControls {
  readonly clock: Clock;
  readonly rights = new Map<string, Map<string, Right>>();
  readonly keys = new Map<string, { answer: JsonObject; at: number }>();
  #changes: WorkChange[] = [];
  #repeatedKey: RepeatedKey = "same_result";
  #isInChat: (who: string, chatId: string) => boolean = () => false;

  constructor(clock: Clock) {
    this.clock = clock;
  }

  get changes(): readonly WorkChange[] {
    return this.#changes;
  }

  share(objectId: string, who: string, right: Right): void {
    const rights = this.rights.get(objectId) ?? new Map<string, Right>();
    rights.set(who, right);
    this.rights.set(objectId, rights);
  }

  unshare(objectId: string, who: string): void {
    this.rights.get(objectId)?.delete(who);
  }

  setRepeatedKey(how: RepeatedKey): void {
    this.#repeatedKey = how;
  }

  /** Who is in a chat, when objects are shared with chats. */
  setChats(isInChat: (who: string, chatId: string) => boolean): void {
    this.#isInChat = isInChat;
  }

  may(who: string, objectId: string, right: Right = "view"): boolean {
    return this.sharedWith(objectId).some(
      ([one, has]) =>
        ranks.indexOf(has) >= ranks.indexOf(right) &&
        (one === who || (one.startsWith("oc_") && this.#isInChat(who, one))),
    );
  }

  /** Who has a right to the object. */
  sharedWith(objectId: string): [who: string, right: Right][] {
    return [...(this.rights.get(objectId) ?? [])];
  }

  /** Throws the code where the caller may not do that. */
  require(
    call: ApiCallContext,
    objectId: string,
    { right = "view", code }: { right?: Right; code: number },
  ): void {
    if (!this.may(actorOf(call), objectId, right)) {
      throw new PlatformError(code, "permission denied", {
        status: code < 100_000_000 ? 403 : 400,
      });
    }
  }

  record(call: ApiCallContext, kind: string, content: string): void {
    this.#changes.push({ kind, by: actorOf(call), content, at: this.clock.now() });
    if (this.#changes.length > maxChanges) this.#changes = this.#changes.slice(-maxChanges / 2);
  }

  /**
   * Applies a write at most once a key: a repeat inside of the window gets the first answer, or the conflict. Keys are
   * kept by operation, app and caller. A write that is refused leaves its key free.
   */
  once(
    call: ApiCallContext,
    {
      api,
      key,
      windowMs,
      conflict,
    }: { api: string; key: string | undefined; windowMs: number; conflict: PlatformError },
    apply: () => JsonObject,
  ): JsonObject {
    if (key === undefined) return apply();
    const name = `${api} ${call.app.appId} ${actorOf(call)} ${key}`;
    const now = this.clock.now();
    const before = this.keys.get(name);
    if (before !== undefined && now - before.at < windowMs) {
      if (this.#repeatedKey === "conflict") throw conflict;
      return before.answer;
    }
    const answer = apply();
    for (const [old, { at }] of this.keys) if (now - at > longestWindowMs) this.keys.delete(old);
    this.keys.set(name, { answer, at: now });
    return answer;
  }
}

const longestWindowMs = 10 * 3_600_000;

/** As whom a call is made: the open id of a person, or the app's id. */
export function actorOf({ app, person }: ApiCallContext): string {
  return person?.openId ?? app.appId;
}

/** The key of a write in the query, of the form that the operation demands. */
export function uuidKeyOf({ query }: ApiCallContext, invalid: number): string | undefined {
  const key = query.get("client_token");
  if (key === null || key === "") return undefined;
  if (!/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i.test(key)) {
    throw new PlatformError(invalid, "client_token must be a UUID of version 4");
  }
  return key;
}
