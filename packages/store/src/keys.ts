import { rootSessionOf, type SessionKey } from "@larkline/protocol";
import type { Clock, Random } from "@larkline/protocol/clock";
import { LRUCache } from "lru-cache";
import type { RedisConnection } from "./connection.ts";
import { keyTable } from "./key-table.ts";

/**
 * Sessions are spread over this many cells. All keys of a cell share one hash tag and so one
 * Redis Cluster slot, because a script may touch a session together with the indexes of its cell.
 * A fixed number: changing it would orphan stored sessions.
 */
export const cellCount = 16;

/** Prefix of every key when nothing else is configured. */
export const defaultNamespace = "larkline";

/** Where a store keeps what it knows; all stores and processes of a deployment agree on it. */
export interface StoreOptions {
  redis: RedisConnection;
  /** Prefix of every key. Default: {@link defaultNamespace}. */
  namespace?: string;
  /** The machine's if absent, as is `random`. */
  clock?: Clock;
  random?: Random;
}

/** Number of the cell that a session belongs to; a child session is in that of its root. */
export function cellOf(session: SessionKey): number {
  const name = rootSessionOf(session);
  let hash = 0x811c9dc5; // FNV-1a
  for (let i = 0; i < name.length; i += 1) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return (hash >>> 0) % cellCount;
}

type Table = typeof keyTable;
type Group = Readonly<Record<string, { readonly key: string }>>;
type Value = string | number;

/** What is left open in the form of a key, as one text each. */
type OpenIn<
  Key extends string,
  Given extends string,
> = Key extends `${string}<${infer Name}>${infer Rest}`
  ? Name extends Given
    ? OpenIn<Rest, Given>
    : [Value, ...OpenIn<Rest, Given>]
  : [];

/** The key of a row, or a function of the values that are still open, in the order of the form. */
type KeyOf<Key extends string, Given extends string> =
  OpenIn<Key, Given> extends [] ? string : (...open: OpenIn<Key, Given>) => string;

type KeysOf<Rows extends Group, Given extends string> = {
  readonly [Name in keyof Rows]: KeyOf<Rows[Name]["key"], Given>;
};

/** The indexes of one cell. */
export type CellKeys = KeysOf<Table["cell"], "ns" | "c">;
/** The keys of one session, and the indexes of its cell. */
export type SessionKeys = CellKeys & KeysOf<Table["session"], "ns" | "c" | "s" | "root">;
/** The keys of one app's permission rules, and the audit log outside the cells. */
export type RuleKeys = KeysOf<Table["rules"], "ns" | "app"> & { readonly audit: string };
export type MemoryKeys = KeysOf<Table["memories"], "ns" | "owner">;
export type TraceWindowKeys = KeysOf<Table["traceWindow"], "ns" | "w">;
type RatingKeys = KeysOf<Table["ratings"], "ns">;

/** Names all keys of one namespace. */
export interface Keyspace extends KeysOf<Table["whole"], "ns"> {
  cells(): readonly CellKeys[];
  session(session: SessionKey): SessionKeys;
  rules(app: string): RuleKeys;
  memories(owner: string): MemoryKeys;
  traceWindow(window: number): TraceWindowKeys;
  ratings(): RatingKeys;
}

/** The last one that was made. */
let shared: { namespace: string; keyspace: Keyspace } | undefined;

/** All stores of a process have one namespace, and share the keys that one of them has put together. */
export function createKeyspace(namespace: string = defaultNamespace): Keyspace {
  if (shared?.namespace !== namespace) shared = { namespace, keyspace: newKeyspace(namespace) };
  return shared.keyspace;
}

function newKeyspace(ns: string): Keyspace {
  const cells = Array.from({ length: cellCount }, (_, c) => ({
    keys: keysIn(formsOf(keyTable.cell), { ns, c }),
    forms: formsOf(keyTable.session, { ns, c }),
  }));
  const cellKeys = cells.map(({ keys }) => keys);
  const whole = keysIn(formsOf(keyTable.whole), { ns });
  const rules = formsOf(keyTable.rules, { ns });
  const memories = formsOf(keyTable.memories, { ns });
  const windows = formsOf(keyTable.traceWindow, { ns });
  const ratings = keysIn(formsOf(keyTable.ratings), { ns });
  // Cached, because a turn asks for them some ten times, and they are some forty texts.
  const sessions = new LRUCache<SessionKey, SessionKeys>({ max: 500 });
  return {
    ...whole,
    cells: () => cellKeys,
    session: (s) => {
      const known = sessions.get(s);
      if (known !== undefined) return known;
      const cell = cells[cellOf(s)];
      if (cell === undefined) throw new RangeError("cell out of range");
      const keys = Object.assign(keysIn(cell.forms, { s, root: rootSessionOf(s) }), cell.keys);
      sessions.set(s, keys);
      return keys;
    },
    rules: (app) => ({ ...keysIn(rules, { app }), audit: whole.audit }),
    memories: (owner) => keysIn(memories, { owner }),
    traceWindow: (w) => keysIn(windows, { w }),
    ratings: () => ratings,
  };
}

/** The form of a key: texts and, between them, the names of the values that are still open. */
type Form = readonly string[];

/** The forms of a group's keys. `Given` is in them already. */
interface Forms<Rows extends Group, Given extends string> {
  of: Readonly<Record<keyof Rows, Form>>;
  /** For the type of the keys only. */
  given?: Given;
}

/** The forms of a group, with the values that all who ask for its keys have in common. */
function formsOf<Rows extends Group, Given extends string = never>(
  rows: Rows,
  given?: Readonly<Record<Given, Value>>,
): Forms<Rows, Given> {
  const forms = Object.entries(rows).map(([name, { key }]) => [
    name,
    filled(key.split(/<([^>]+)>/), given ?? {}),
  ]);
  return { of: Object.fromEntries(forms) as Readonly<Record<keyof Rows, Form>> }; // its entries, one for one
}

/** The keys of a group. */
function keysIn<Rows extends Group, Before extends string, Given extends string>(
  forms: Forms<Rows, Before>,
  given: Readonly<Record<Given, Value>>,
): KeysOf<Rows, Before | Given> {
  const keys: Partial<Record<keyof Rows, unknown>> = {};
  for (const name in forms.of) {
    const form = filled(forms.of[name], given);
    keys[name] = form.length === 1 ? form[0] : (...open: Value[]) => keyOf(form, open);
  }
  return keys as KeysOf<Rows, Before | Given>; // by the forms that the type reads, too
}

function filled(form: Form, given: Readonly<Record<string, Value>>): Form {
  const left: string[] = [];
  let text = form[0] ?? "";
  for (let at = 1; at < form.length; at += 2) {
    const open = form[at] ?? "";
    const value = given[open];
    if (value === undefined) {
      left.push(text, open);
      text = form[at + 1] ?? "";
    } else text += `${value}${form[at + 1]}`;
  }
  left.push(text);
  return left;
}

/** With the values that were open, in their order. */
function keyOf(form: Form, values: readonly Value[]): string {
  let key = form[0] ?? "";
  for (let at = 1; at < form.length; at += 2) {
    const value = values[(at - 1) / 2];
    if (value === undefined) {
      throw new TypeError(`the key ${form.join("|")} is asked for without ${form[at]}`);
    }
    key += `${value}${form[at + 1]}`;
  }
  return key;
}
