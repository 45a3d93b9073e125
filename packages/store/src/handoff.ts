import {
  handoffMac,
  parseHandoffAnswer,
  type HandoffAnswer,
  type HandoffEntry,
  type SessionKey,
} from "@larkline/protocol";
import { type RedisConnection, subscriberOf } from "./connection.ts";
import { cellOf, createKeyspace, defaultNamespace, type Keyspace } from "./keys.ts";
import { runScript, script } from "./script.ts";

// Runners reach no key of a session. What they have to say goes into a stream of their own in the session's cell,
// signed, and a worker carries it over (handoff-import.ts). This file is the runner's side.

const handIn = script("hand-in");

export interface RunnerHandoffOptions {
  redis: RedisConnection;
  namespace?: string;
  runner: string;
  runnerKey: string;
}

/** Where workers listen for rings: one of them, or all. */
export function ringChannel(keys: Keyspace, worker?: string): string {
  return keys.global(worker === undefined ? "handoff" : `handoff:${worker}`);
}

/** How a runner tells workers about its calls. */
export class RunnerHandoff {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #runner: string;
  readonly #runnerKey: string;

  constructor({ redis, namespace = defaultNamespace, runner, runnerKey }: RunnerHandoffOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#runner = runner;
    this.#runnerKey = runnerKey;
  }

  /** Hands an entry in, and rings. Resolves with the entry's id when Redis has it: from then on it is not lost. */
  async add(entry: HandoffEntry, worker?: string): Promise<string> {
    const text = JSON.stringify(entry);
    const ring = JSON.stringify({ runner: this.#runner, cell: cellOf(entry.session) });
    const id = await runScript(
      this.#redis,
      handIn,
      { handoff: this.#streamOf(entry.session) },
      {
        entry: text,
        mac: handoffMac(this.#runnerKey, text),
        ring,
        workerChannel: worker === undefined ? "" : ringChannel(this.#keys, worker),
        channel: ringChannel(this.#keys),
      },
    );
    return String(id);
  }

  /** Rings every worker once more, in case that the ring was lost. */
  async ring(session: SessionKey): Promise<void> {
    const ring = JSON.stringify({ runner: this.#runner, cell: cellOf(session) });
    await this.#redis.publish(ringChannel(this.#keys), ring);
  }

  /** The answer to a question, once there is one; kept for ten minutes. */
  async answerTo(session: SessionKey, ask: string): Promise<HandoffAnswer["answer"] | undefined> {
    const answer = await this.#redis.get(this.#keys.session(session).answerOf(this.#runner, ask));
    const parsed = parseHandoffAnswer(JSON.stringify({ ask, answer }));
    return parsed.ok ? parsed.value.answer : undefined;
  }

  /** Calls `listener` with each answer to this runner, best effort, until `signal` aborts. */
  async followAnswers(listener: (answer: HandoffAnswer) => void, signal: AbortSignal): Promise<void> {
    const subscriber = subscriberOf(this.#redis);
    subscriber.on("error", () => undefined); // reconnects and subscribes again by itself
    subscriber.on("message", (_channel: string, text: string) => {
      const parsed = parseHandoffAnswer(text);
      if (parsed.ok && !signal.aborted) listener(parsed.value);
    });
    signal.addEventListener("abort", () => subscriber.disconnect(), { once: true });
    await subscriber.subscribe(this.#keys.global(`begun:${this.#runner}`));
    if (signal.aborted) subscriber.disconnect();
  }

  #streamOf(session: SessionKey): string {
    return this.#keys.session(session).handoffOf(this.#runner);
  }
}
