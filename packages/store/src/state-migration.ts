import { type RedisConnection, runScript, script } from "./connection.ts";
import { stateVersion } from "./instance-directory.ts";
import { createKeyspace, defaultNamespace, type Keyspace } from "./keys.ts";
import { storedSessions } from "./retention.ts";

// The version before had short names for the fields of hashes. Once, while none of its processes lives, they get the
// names of this version.

const renameFields = script("rename-fields");

const sessionNames = {
  st: "state",
  gen: "generation",
  es: "eventSeq",
  olt: "outboxLease",
  ole: "outboxLeaseUntil",
  ort: "outboxRetryAt",
};
const stateNames = {
  rg: "runningGeneration",
  ep: "epoch",
  hs: "headSeq",
  try: "tries",
  own: "owner",
  abs: "absorbed",
  hb: "historyBase",
  sm: "summary",
  cs: "contextStart",
  hv: "contextVersion",
  set: "settings",
};
const highestNames = { gen: "generation", es: "eventSeq", hb: "historyBase" };
const approvalNames = {
  a: "approval",
  exp: "expiresAtMs",
  need: "needed",
  hash: "argumentsHash",
  hc: "hasCards",
  f: "facts",
};
const saidNames = {
  st: "state",
  at: "settledAtMs",
  dec: "decisions",
  v: "changes",
  cv: "seenChanges",
  ct: "leaseToken",
  cu: "leaseUntil",
};

export interface StateMigrationOptions {
  redis: RedisConnection;
  namespace?: string;
}

/** Gives what the version before has stored the form of this one. To be run while none of its processes lives. */
export class StateMigration {
  readonly #redis: RedisConnection;
  readonly #namespace: string;
  readonly #keys: Keyspace;

  constructor({ redis, namespace = defaultNamespace }: StateMigrationOptions) {
    this.#redis = redis;
    this.#namespace = namespace;
    this.#keys = createKeyspace(namespace);
  }

  /** Whether everything that is stored has the form of this version. */
  async isDone(): Promise<boolean> {
    return (await this.#redis.get(this.#keys.stateVersion)) === String(stateVersion);
  }

  /** Resolves to the number of sessions when all are moved. Two processes may run it at once, and it may be run again. */
  async run(signal: AbortSignal): Promise<number> {
    let moved = 0;
    for (const { highest } of this.#keys.cells()) await this.#rename(highest, highestNames);
    for await (const session of storedSessions(this.#redis, this.#namespace, signal)) {
      const keys = this.#keys.session(session);
      for (const id of await this.#redis.zrange(keys.kept, "0", "-1")) {
        await this.#rename(keys.approvalOf(id), approvalNames);
        await this.#rename(keys.saidOf(id), saidNames);
      }
      await this.#rename(keys.state, stateNames);
      // Last: ingress leaves a session alone as long as this hash has its old names.
      await this.#rename(keys.session, sessionNames);
      moved += 1;
    }
    signal.throwIfAborted();
    await this.#redis.set(this.#keys.stateVersion, String(stateVersion));
    return moved;
  }

  async #rename(hash: string, names: Record<string, string>): Promise<void> {
    await runScript(this.#redis, renameFields, { hash }, { names: JSON.stringify(names) });
  }
}
