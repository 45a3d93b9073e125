import { createHash } from "node:crypto";
import { jsonParserOf, type SessionKey } from "@larkline/protocol";
import { Type, type Static } from "@larkline/protocol/type";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

// The working folder of a session: text files in one hash of the session's cell, so that any worker continues it, each
// write is one step with the ledger of calls, and whatever removes the session removes them.

/** A file as it is stored: what is known of it in the first line, its text behind that. */
const FileHead = Type.Object({
  v: Type.Literal(1),
  /** The calls that have written it, the latest last: one that runs again has its effect already. */
  calls: Type.Array(Type.String()),
  /** Whose turns have written it, by open_id. */
  by: Type.Array(Type.String()),
});
const parseHead = jsonParserOf(FileHead);

export interface SessionFile {
  path: string;
  text: string;
  /** Of the text. */
  bytes: number;
  /** Whether this call has written it before. */
  isOf(call: FileChange): boolean;
  readonly by: readonly string[];
}

/** What one call does to a file. */
export interface FileChange {
  turnId: string;
  /** The attempt of the call, which has to be open. */
  call: string;
  /** Whose turn it is. */
  by: string;
  path: string;
}

/**
 * `closed`: the call is answered already. `full`: the folder has no room. `length`: the file is too long.
 * `busy`: others write this file all the time.
 */
export type WriteResult = "written" | "closed" | "full" | "length" | "busy";

/** Bounds of one folder. */
export const folderLimits = {
  files: 100,
  /** Of one file. */
  fileBytes: 200_000,
  /** Of all files, with what is known of each. */
  bytes: 2_000_000,
  pathCharacters: 200,
  depth: 8,
} as const;

const maxCalls = 16;
const maxTries = 5;

const writeFile = script("write-file");

/** Why this is no path of a folder, in words; undefined where it is one. */
export function problemOfPath(path: string): string | undefined {
  const parts = path.split("/");
  if (path.length > folderLimits.pathCharacters) {
    return `has more than ${folderLimits.pathCharacters} characters`;
  }
  if (parts.length > folderLimits.depth) return `has more than ${folderLimits.depth} levels`;
  if (path.startsWith("/")) return "begins with a slash";
  if (/[\\\p{Cc}\p{Cf}\u2028\u2029]/u.test(path)) return "has characters that no path has here";
  const isPlain = parts.every(
    (part) => part !== "" && part !== "." && part !== ".." && part === part.trim(),
  );
  return isPlain ? undefined : "has an empty part, `.`, `..` or blanks at the ends of a part";
}

/** The working folders of sessions. */
export class SessionFiles {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;

  constructor({ redis, namespace }: StoreOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
  }

  /** All files, by path. Bounded as the folder is. */
  async all(session: SessionKey): Promise<SessionFile[]> {
    const stored = await this.#redis.hgetall(this.#keys.session(session).files);
    const files = Object.entries(stored).map(([path, text]) => fileFrom(path, text));
    return files.sort((one, other) => (one.path < other.path ? -1 : 1));
  }

  async read(session: SessionKey, path: string): Promise<SessionFile | undefined> {
    const stored = await this.#redis.hget(this.#keys.session(session).files, path);
    return stored === null ? undefined : fileFrom(path, stored);
  }

  /**
   * Changes a file to what `text` makes of it; undefined takes it away. It is asked again when another call has written
   * the file meanwhile, and must not be asked for more than it is given. Text that it returns unchanged is not written.
   */
  async change(
    session: SessionKey,
    change: FileChange,
    text: (file: SessionFile | undefined) => string | undefined,
  ): Promise<WriteResult> {
    const { call, path } = change;
    const keys = this.#keys.session(session);
    const { files: maxFiles, fileBytes, bytes: maxBytes } = folderLimits;
    for (let tries = 0; tries < maxTries; tries += 1) {
      const stored = await this.#redis.hget(keys.files, path);
      const file = stored === null ? undefined : fileFrom(path, stored);
      const wanted = text(file);
      // That a file was taken away is noted also where there was none.
      if (wanted !== undefined && wanted === file?.text) return "written";
      if (wanted !== undefined && Buffer.byteLength(wanted) > fileBytes) return "length";
      const content = wanted === undefined ? "" : storedFile(wanted, change, stored);
      const known = stored === null ? "" : createHash("sha1").update(stored).digest("hex");
      const values = { callId: call, path, known, content, maxFiles, maxBytes };
      const result = String(await runScript(this.#redis, writeFile, keys, values));
      if (result !== "changed") return result as "written" | "closed" | "full"; // the script answers nothing else
    }
    return "busy";
  }

  /** Takes away the files that turns of this person have written. Returns how many. */
  async eraseBy(session: SessionKey, person: string): Promise<number> {
    const theirs = (await this.all(session)).flatMap(({ path, by }) =>
      by.includes(person) ? [path] : [],
    );
    return theirs.length === 0
      ? 0
      : await this.#redis.hdel(this.#keys.session(session).files, ...theirs);
  }
}

function headOf(stored: string): Static<typeof FileHead> {
  const parsed = parseHead(stored.slice(0, stored.indexOf("\n")));
  return parsed.ok ? parsed.value : { v: 1, calls: [], by: [] };
}

function fileFrom(path: string, stored: string): SessionFile {
  const { calls, by } = headOf(stored);
  const text = stored.slice(stored.indexOf("\n") + 1);
  return {
    path,
    text,
    bytes: Buffer.byteLength(text),
    isOf: (call) => calls.includes(markOf(call)),
    by,
  };
}

function markOf({ turnId, call }: FileChange): string {
  return createHash("sha256").update(`${turnId} ${call}`).digest("base64url").slice(0, 12);
}

function storedFile(text: string, change: FileChange, before: string | null): string {
  const head = before === null ? { calls: [], by: [] } : headOf(before);
  const people = new Set([...head.by, change.by]);
  const calls = [...head.calls, markOf(change)].slice(-maxCalls);
  return `${JSON.stringify({ v: 1, calls, by: [...people] } satisfies Static<typeof FileHead>)}\n${text}`;
}
