import { jsonParserOf } from "@larkline/protocol";
import { Type } from "@larkline/protocol/type";
import { keepAllAudits } from "./audit-log.ts";
import { type RedisConnection, subscriberOf } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type StoreOptions } from "./keys.ts";

/** What operators pause. */
export const pausable = ["agent", "tool"] as const;

export interface Paused {
  what: (typeof pausable)[number];
  name: string;
}

/** Since when, and who wanted it. */
export interface Pause extends Paused {
  by: string;
  sinceMs: number;
}

/** How many agents and tools may be paused at a time. */
const maxPauses = 1_000;

const StoredPause = Type.Object({ by: Type.String(), sinceMs: Type.Integer() });
const parsePause = jsonParserOf(StoredPause);

const pause = script("pause");

/**
 * The agents and tools that operators have paused, until they let them work again. A worker keeps what it has read last,
 * so that no turn asks Redis for it.
 */
export class Pauses {
  readonly #redis: RedisConnection;
  readonly #pauses: string;
  readonly #audit: string;
  readonly #channel: string;
  readonly #maxPauses: number;
  /** Whether anything is paused, as {@link refresh} has found it last. */
  hasAny = false;
  #known: ReadonlyMap<string, Pause> = new Map();

  constructor({ redis, namespace, most = maxPauses }: StoreOptions & { most?: number }) {
    const keys = createKeyspace(namespace);
    this.#redis = redis;
    this.#pauses = keys.pauses;
    this.#audit = keys.audit;
    this.#channel = keys.pausesChanged;
    this.#maxPauses = most;
  }

  /** The audit log has it in the same step. `nothing`: it was so before; `full`: too many are paused. */
  async set(
    { what, name }: Paused,
    isPaused: boolean,
    by: string,
  ): Promise<"done" | "nothing" | "full"> {
    const values = {
      field: fieldOf(what, name),
      kind: `${what}_${isPaused ? "paused" : "resumed"}`,
      isPaused: isPaused ? 1 : 0,
      by,
      most: this.#maxPauses,
      facts: JSON.stringify({ [what]: name }),
      channel: this.#channel,
      auditMax: keepAllAudits,
    };
    const reply = Number(
      await runScript(this.#redis, pause, { pauses: this.#pauses, audit: this.#audit }, values),
    );
    return reply === 1 ? "done" : reply === 0 ? "nothing" : "full";
  }

  /** All of them, the newest first. */
  async list(): Promise<Pause[]> {
    const stored = Object.entries(await this.#redis.hgetall(this.#pauses));
    return stored
      .flatMap(([field, text]) => pauseFrom(field, text) ?? [])
      .sort((one, other) => other.sinceMs - one.sinceMs);
  }

  /** As {@link refresh} has found it last; undefined for what works. */
  of(what: Paused["what"], name: string): Pause | undefined {
    return this.#known.get(fieldOf(what, name));
  }

  async refresh(): Promise<void> {
    this.#known = new Map((await this.list()).map((one) => [fieldOf(one.what, one.name), one]));
    this.hasAny = this.#known.size > 0;
  }

  /**
   * Calls `listener` after every change until `signal` aborts; also when changes may have been missed. Resolves when
   * watching has begun.
   */
  async watch(listener: () => void, signal: AbortSignal): Promise<void> {
    const subscriber = subscriberOf(this.#redis);
    subscriber.on("error", () => undefined); // ioredis reconnects and subscribes again by itself
    // A message may arrive while the connection ends.
    const unlessLeft = (): void => {
      if (!signal.aborted) listener();
    };
    subscriber.on("message", unlessLeft);
    subscriber.on("ready", unlessLeft);
    signal.addEventListener("abort", () => subscriber.disconnect(), { once: true });
    await subscriber.subscribe(this.#channel);
    if (signal.aborted) subscriber.disconnect();
  }
}

function fieldOf(what: Paused["what"], name: string): string {
  return `${what}:${name}`;
}

/** Undefined for what no worker of this version has written. */
function pauseFrom(field: string, text: string): Pause | undefined {
  const what = pausable.find((one) => field.startsWith(`${one}:`));
  const parsed = parsePause(text);
  return what === undefined || !parsed.ok
    ? undefined
    : { what, name: field.slice(what.length + 1), ...parsed.value };
}
