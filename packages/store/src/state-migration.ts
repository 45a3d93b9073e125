import type { SessionKey } from "@larkline/protocol";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace, type Keyspace } from "./keys.ts";
import { storedSessions } from "./retention.ts";
import { defineScript, type Script } from "./script.ts";
import { StateSeal } from "./state-seal.ts";

// The version before kept all of a session in one hash and all of an approval in one, unsealed, and other processes
// than workers could write to them. Once, while none of its processes lives, that is moved to keys which only workers
// write, and sealed. Never later: what stands there unsealed then was not written by a worker.

/** Since when state is sealed; kept in Redis when everything that is stored has this form. */
const sealedVersion = "2";

const ownedFields = ["rg", "ep", "hs", "try", "own", "abs", "hb", "cs", "hv"] as const;

/** -> 1 | 0 it has changed since it was read. */
const moveStateLua = `
-- KEYS session state | ARGV turn sealedTurn summary sealedSummary settings sealedSettings
local contents = {'turn', 'sm', 'set'}
local old = redis.call('HMGET', KEYS[1], unpack(contents))
for i = 1, 3 do if (old[i] or '') ~= ARGV[2 * i - 1] then return 0 end end
if redis.call('EXISTS', KEYS[2]) == 0 then
  for _, field in ipairs({${ownedFields.map((field) => `'${field}'`).join(", ")}}) do
    local value = redis.call('HGET', KEYS[1], field)
    if value then redis.call('HSET', KEYS[2], field, value) end
  end
  for i = 1, 3 do if ARGV[2 * i] ~= '' then redis.call('HSET', KEYS[2], contents[i], ARGV[2 * i]) end end
end
redis.call('HDEL', KEYS[1], 'turn', 'sm', 'set', ${ownedFields.map((field) => `'${field}'`).join(", ")})
return 1`;

const moveApprovalLua = `
-- KEYS record said
if redis.call('EXISTS', KEYS[2]) == 1 then return end
local asked = {a = 1, kind = 1, turn = 1, call = 1, exp = 1, need = 1, hash = 1, hc = 1, f = 1}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if not asked[all[i]] then
    redis.call('HSET', KEYS[2], all[i], all[i + 1])
    redis.call('HDEL', KEYS[1], all[i])
  end
end
local ttlMs = redis.call('PTTL', KEYS[1])
if ttlMs > 0 then redis.call('PEXPIRE', KEYS[2], ttlMs) end`;

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
  readonly #moveState: Script;
  readonly #moveApproval: Script;

  constructor({ redis, namespace = defaultNamespace, stateKey }: StateMigrationOptions) {
    this.#redis = redis;
    this.#namespace = namespace;
    this.#keys = createKeyspace(namespace);
    this.#seal = new StateSeal(stateKey);
    this.#moveState = defineScript(redis, "state_move", moveStateLua);
    this.#moveApproval = defineScript(redis, "state_moveApproval", moveApprovalLua);
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
      await Promise.all(ids.map(async (id) => await this.#moveApproval([approvalOf(id), saidOf(id)], [])));
      moved += 1;
    }
    signal.throwIfAborted();
    await this.#redis.set(this.#keys.global("state-version"), sealedVersion);
    return moved;
  }

  async #move(session: SessionKey): Promise<boolean> {
    const keys = this.#keys.session(session);
    const [epoch, turn, summary, settings] = await this.#redis.hmget(keys.session, "ep", "turn", "sm", "set");
    const sealed = (what: "turn" | "summary" | "settings", text: string | null | undefined): [string, string] => {
      if (typeof text !== "string") return ["", ""];
      return [text, this.#seal.seal(what, session, { epoch: epoch ?? "0", text })];
    };
    const args = [...sealed("turn", turn), ...sealed("summary", summary), ...sealed("settings", settings)];
    return (await this.#moveState([keys.session, keys.state], args)) === 1;
  }
}
