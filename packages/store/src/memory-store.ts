import { createHash } from "node:crypto";
import { hideSecrets, type MemoryOwner } from "@larkline/protocol";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type Keyspace, type MemoryKeys, type StoreOptions } from "./keys.ts";
import type { ScriptReplies } from "./script-replies.ts";

export interface Memory {
  /** Unique within its owner. */
  readonly id: string;
  readonly text: string;
  /** Who has said so, by open_id. */
  readonly by: string;
  /** Epoch ms. */
  readonly atMs: number;
  readonly usedAtMs: number;
  readonly uses: number;
}

/** A memory that was looked up, and whose it is. */
export interface OwnedMemory extends Pick<Memory, "id" | "text" | "by" | "atMs"> {
  readonly owner: MemoryOwner;
}

/** What became of a text. `known`: the owner has a memory of the same text. */
export type RememberResult =
  | { state: "written" | "known"; id: string }
  /** `forgotten`: this call has written it before, and it was taken away since. */
  | { state: "off" | "forgotten" | "secret" | "length" };

export interface FoundMemories {
  /** The person wants nothing remembered. */
  off: boolean;
  memories: Memory[];
}

interface MemoryStoreOptions extends StoreOptions {
  /** How long a memory is kept after its last use, ms; 0: for good. Default: 365 days. */
  ttlMs?: number;
}

const dayMs = 86_400_000;
/** Longer than a dead worker's call may take to be run again. */
const forgottenMs = dayMs;
/** Memories of one owner; the least used one goes. */
const maxMemories = 200;
const maxMemoryCharacters = 1_000;
/** More memories than these are kept as one text between look-ups, for so long. */
const manyMemories = 32;
const lookUpMs = 600_000;
/** What one look-up gives. */
const maxFound = 8;
const maxFoundCharacters = 2_000;

const addMemory = script("add-memory");
const readMemories = script("read-memories");
const findMemories = script("find-memories");
const useMemories = script("use-memories");
const forgetMemories = script("forget-memories");
const switchMemory = script("switch-memory");

/** Memories of people and chats. Each method is one round trip. */
export class MemoryStore {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #ttlMs: number;

  constructor({ redis, namespace, ttlMs = 365 * dayMs }: MemoryStoreOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#ttlMs = ttlMs;
  }

  /** Writes a memory, once per `call`, however often it is repeated. */
  async remember(
    owner: MemoryOwner,
    { call, text: given, by }: { call: string; text: string; by: string },
  ): Promise<RememberResult> {
    const text = given.trim();
    if (text === "" || text.length > maxMemoryCharacters) return { state: "length" };
    if (looksSecret(text)) return { state: "secret" };
    const tenant = tenantOf(owner);
    const member = `${tenant}.${hashOf(call).slice(0, idLength)}`;
    const values = { member, tenant, text, by, most: maxMemories, ttlMs: this.#ttlMs };
    const reply = String(await runScript(this.#redis, addMemory, this.#keysOf(owner), values));
    if (reply === "off" || reply === "forgotten") return { state: reply };
    return { state: reply === member ? "written" : "known", id: idOf(reply) };
  }

  /** All of an owner, the newest first. */
  async list(owner: MemoryOwner): Promise<FoundMemories> {
    const reply = await runScript(this.#redis, readMemories, this.#keysOf(owner), {
      tenant: tenantOf(owner),
    });
    return foundIn(reply);
  }

  /**
   * The best ones for a text: those with most words in common, of these the newest; at most 8 with 2,000 characters.
   * None where `asker` wants nothing remembered.
   */
  async find(
    asker: MemoryOwner,
    owners: readonly MemoryOwner[],
    query: string,
  ): Promise<OwnedMemory[]> {
    const [off, ...lists] = await Promise.all([
      owners.includes(asker) ? false : this.isOff(asker),
      ...owners.map(async (owner) => await this.#ownedBy(owner)),
    ]);
    const all = lists.flatMap((list) => list ?? []);
    return off || lists.includes(undefined) ? [] : bestFor(query, all);
  }

  /** All of an owner, as much of each as a look-up needs; undefined where they want nothing remembered. */
  async #ownedBy(owner: MemoryOwner): Promise<OwnedMemory[] | undefined> {
    const values = { many: manyMemories, keptMs: lookUpMs };
    const reply = await runScript(this.#redis, findMemories, this.#keysOf(owner), values);
    const [off, json] = reply as [number, string]; // shape fixed by the script
    if (off === 1) return undefined;
    const fields = JSON.parse(json) as string[]; // the same
    const tenant = `${tenantOf(owner)}.`;
    const memories: OwnedMemory[] = [];
    for (let at = 0; at < fields.length; at += 4) {
      const [member = "", text = "", by = "", atMs] = fields.slice(at, at + 4);
      if (member.startsWith(tenant)) {
        memories.push({ id: idOf(member), text, by, atMs: Number(atMs), owner });
      }
    }
    return memories;
  }

  /** Whether a person wants nothing remembered. */
  async isOff(owner: MemoryOwner): Promise<boolean> {
    return (await this.#redis.exists(this.#keysOf(owner).off)) === 1;
  }

  /** These were shown to a model. */
  async used(owner: MemoryOwner, ids: readonly string[]): Promise<void> {
    if (ids.length === 0) return;
    await runScript(this.#redis, useMemories, this.#keysOf(owner), {
      ttlMs: this.#ttlMs,
      members: membersOf(owner, ids),
    });
  }

  /** Returns how many of them there were. */
  async forget(owner: MemoryOwner, ids: readonly string[]): Promise<number> {
    const values = { knownMs: forgottenMs, members: membersOf(owner, ids) };
    return ids.length === 0
      ? 0
      : Number(await runScript(this.#redis, forgetMemories, this.#keysOf(owner), values));
  }

  /** Switches the memories of a person off, which erases them, or on again. Returns how many are erased. */
  async switch(owner: MemoryOwner, state: "on" | "off"): Promise<number> {
    return Number(await runScript(this.#redis, switchMemory, this.#keysOf(owner), { state }));
  }

  /** Of every tenant. */
  async everything(owner: Omit<MemoryOwner, "tenant">): Promise<FoundMemories> {
    return foundIn(await runScript(this.#redis, readMemories, this.#keysOf(owner), { tenant: "" }));
  }

  /** Takes away all of an owner, in every tenant; nothing is left, not even the wish that nothing be remembered. */
  async erase(owner: Omit<MemoryOwner, "tenant">): Promise<number> {
    const keys = this.#keysOf(owner);
    const count = Number(await runScript(this.#redis, switchMemory, keys, { state: "erased" }));
    await this.#redis.del(keys.forgotten);
    return count;
  }

  /** Removes one memory, in any tenant. False where the owner has none of this id. */
  async takeBack(owner: Omit<MemoryOwner, "tenant">, id: string): Promise<boolean> {
    const keys = this.#keysOf(owner);
    const { memories } = await runScript(this.#redis, readMemories, keys, { tenant: "" });
    const members = memories.flatMap(({ member }) => (idOf(member) === id ? [member] : []));
    const values = { knownMs: forgottenMs, members };
    return (
      members.length > 0 && Number(await runScript(this.#redis, forgetMemories, keys, values)) > 0
    );
  }

  /** Takes away what one person has left with an owner, in every tenant. */
  async eraseBy(owner: Omit<MemoryOwner, "tenant">, person: string): Promise<number> {
    const keys = this.#keysOf(owner);
    const { memories } = await runScript(this.#redis, readMemories, keys, { tenant: "" });
    const members = memories.flatMap(({ member, by }) => (by === person ? [member] : []));
    const values = { knownMs: forgottenMs, members };
    return members.length === 0
      ? 0
      : Number(await runScript(this.#redis, forgetMemories, keys, values));
  }

  /** How many there are, those that expired a moment ago perhaps included. */
  async count(owner: Omit<MemoryOwner, "tenant">): Promise<number> {
    return await this.#redis.zcard(this.#keysOf(owner).memories);
  }

  #keysOf({ app, kind, id }: Omit<MemoryOwner, "tenant">): MemoryKeys {
    return this.#keys.memories(hashOf(JSON.stringify([app, kind, id])));
  }
}

function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 32);
}

const idLength = 12;
const tenantLength = 8;

function tenantOf({ tenant = "" }: MemoryOwner): string {
  return hashOf(tenant).slice(0, tenantLength);
}

function membersOf(owner: MemoryOwner, ids: readonly string[]): string[] {
  return ids.map((id) => `${tenantOf(owner)}.${id}`);
}

function idOf(member: string): string {
  return member.slice(tenantLength + 1);
}

function foundIn({ isOff, memories }: ScriptReplies["read-memories"]): FoundMemories {
  const found = memories.map(({ member, ...memory }) => ({ id: idOf(member), ...memory }));
  return { off: isOff, memories: found.sort((one, other) => other.atMs - one.atMs) };
}

/** Words of prose that give a password away: `my password is hunter2`, `密码是 123456`. */
const passwordWords =
  /(?:pass(?:word|code|phrase|wd)?|pwd|pin(?: code)?|secret|token|(?:api|access|private) key|密码|口令|密钥|令牌|验证码)\s*(?:is|was|are|=|:|：|是|为|叫)\s*\S/i;
/** A run of letters and digits that looks like a key. */
const longKey = /(?<![\w/.-])(?=[\w+=-]*\d)(?=[\w+=-]*[A-Za-z])[\w+=-]{24,}(?![\w/.-])/;

/** Whether a text looks like a key, a token or a password. */
function looksSecret(text: string): boolean {
  return passwordWords.test(text) || longKey.test(text) || hideSecrets(text, "\0") !== text;
}

const isPlain = /^[\0-\x7f]*$/;
const plainWord = /[a-z0-9]+/g;
const word = /[\p{L}\p{N}]+/gu;
const cjk = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]+/gu;

/** The words of a text. Chinese, Japanese and Korean do not part words: their pairs of characters count. */
function wordsOf(text: string): Set<string> {
  // A look-up reads two hundred texts before a turn begins, and Unicode's classes cost ten times as much.
  if (isPlain.test(text)) return new Set(text.toLowerCase().match(plainWord));
  const words = new Set<string>();
  const plain = text.normalize("NFKC").toLowerCase();
  for (const [run] of plain.matchAll(cjk)) {
    const characters = [...run];
    if (characters.length === 1) words.add(run);
    for (let at = 1; at < characters.length; at += 1) {
      words.add(`${characters[at - 1]}${characters[at]}`);
    }
  }
  for (const [one] of plain.replaceAll(cjk, " ").matchAll(word)) words.add(one);
  return words;
}

/** Looking for so many words in a text is quicker than parting the text into its own. */
const fewWords = 32;

/** How many of the words a text has. */
function commonWords(text: string, wanted: ReadonlySet<string>): number {
  let common = 0;
  if (wanted.size <= fewWords && isPlain.test(text)) {
    const plain = text.toLowerCase();
    for (const one of wanted) if (hasWord(plain, one)) common += 1;
  } else {
    for (const one of wordsOf(text)) if (wanted.has(one)) common += 1;
  }
  return common;
}

/** Whether a plain text has a word, other than within a longer one. */
function hasWord(plain: string, one: string): boolean {
  for (let at = plain.indexOf(one); at >= 0; at = plain.indexOf(one, at + 1)) {
    if (!isOfWord(plain.charCodeAt(at - 1)) && !isOfWord(plain.charCodeAt(at + one.length))) {
      return true;
    }
  }
  return false;
}

/** a-z, 0-9; beyond the ends of a text there is no code. */
function isOfWord(code: number): boolean {
  return (code >= 97 && code <= 122) || (code >= 48 && code <= 57);
}

/** Longer messages are looked up by their beginning. */
const maxQueryCharacters = 4_000;

/** The memories as a look-up gives them. */
function bestFor(query: string, memories: readonly OwnedMemory[]): OwnedMemory[] {
  const wanted = wordsOf(query.slice(0, maxQueryCharacters));
  const ranked = memories
    .map((memory) => ({ memory, common: commonWords(memory.text, wanted) }))
    .sort((one, other) => other.common - one.common || other.memory.atMs - one.memory.atMs);
  const found: OwnedMemory[] = [];
  let characters = 0;
  for (const { memory } of ranked) {
    if (found.length === maxFound) break;
    if (characters + memory.text.length > maxFoundCharacters) continue;
    characters += memory.text.length;
    found.push(memory);
  }
  return found;
}
