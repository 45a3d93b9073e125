import type { SessionKey } from "@larkline/protocol";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace, type Keyspace } from "./keys.ts";
import { storedSessions } from "./retention.ts";
import { runScript, script } from "./script.ts";
import { StateSeal } from "./state-seal.ts";

// The version before kept all of a session in one hash and all of an approval in one, unsealed, and other processes
// than workers could write to them. Once, while none of its processes lives, that is moved to keys which only workers
// write, and sealed. Never later: what stands there unsealed then was not written by a worker.

/** Since when state is sealed; kept in Redis when everything that is stored has this form. */
const sealedVersion = "2";

const [moveState, moveApproval] = [script("move-state"), script("move-approval")];

export interface StateMigrationOptions {
  redis: RedisConnection;
  namespace?: string;
  /** As the session store has it. */
  stateKey: string;
}

/** Moves and seals what the version before has stored. To be run while none of its processes lives. */
export class StateMigration {
  readonly #redis: RedisConnection;
  readonly #namespace: string;
  readonly #keys: Keyspace;
  readonly #seal: StateSeal;

  constructor({ redis, namespace = defaultNamespace, stateKey }: StateMigrationOptions) {
    this.#redis = redis;
    this.#namespace = namespace;
    this.#keys = createKeyspace(namespace);
    this.#seal = new StateSeal(stateKey);
  }

  /** Whether everything that is stored is sealed. */
  async isDone(): Promise<boolean> {
    return (await this.#redis.get(this.#keys.global("state-version"))) === sealedVersion;
  }

  /** Resolves to the number of sessions when all are moved. Two processes may run it at once, and it may be run again. */
  async run(signal: AbortSignal): Promise<number> {
    let moved = 0;
    for await (const session of storedSessions(this.#redis, this.#namespace, signal)) {
      while (!(await this.#move(session))) signal.throwIfAborted();
      const { kept, approvalOf, saidOf } = this.#keys.session(session);
      const ids = await this.#redis.zrange(kept, "0", "-1");
      for (const id of ids) {
        await runScript(this.#redis, moveApproval, { approval: approvalOf(id), answers: saidOf(id) });
      }
      moved += 1;
    }
    signal.throwIfAborted();
    await this.#redis.set(this.#keys.global("state-version"), sealedVersion);
    return moved;
  }

  async #move(session: SessionKey): Promise<boolean> {
    const keys = this.#keys.session(session);
    const [epoch, turn, summary, settings] = await this.#redis.hmget(keys.session, "ep", "turn", "sm", "set");
    const sealed = (what: "turn" | "summary" | "settings", text: string | null | undefined): string =>
      typeof text === "string" ? this.#seal.seal(what, session, { epoch: epoch ?? "0", text }) : "";
    const values = {
      turn: turn ?? "",
      sealedTurn: sealed("turn", turn),
      summary: summary ?? "",
      sealedSummary: sealed("summary", summary),
      settings: settings ?? "",
      sealedSettings: sealed("settings", settings),
    };
    return (await runScript(this.#redis, moveState, keys, values)) === 1;
  }
}
