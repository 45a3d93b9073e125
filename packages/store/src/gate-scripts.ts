import type { RedisConnection } from "./connection.ts";
import {
  ackOutboxLua,
  appendLua,
  beginLua,
  cancelLua,
  claimLua,
  commitLua,
  deliverLua,
  deliverUnstartedLua,
  emitLua,
  excuseLua,
  giveBackLua,
  handOffLua,
  healLua,
  leaseOutboxLua,
  pushOutboxLua,
  releaseLua,
  reportLua,
  retryOutboxLua,
  saveLua,
  summaryLua,
  wakeDueLua,
} from "./gate-lua.ts";
import { resetLua } from "./reset-lua.ts";
import { defineScript } from "./script.ts";

const sources = {
  append: appendLua,
  release: releaseLua,
  deliver: deliverLua,
  deliverUnstarted: deliverUnstartedLua,
  cancel: cancelLua,
  claim: claimLua,
  handOff: handOffLua,
  excuse: excuseLua,
  save: saveLua,
  commit: commitLua,
  emit: emitLua,
  report: reportLua,
  begin: beginLua,
  giveBack: giveBackLua,
  heal: healLua,
  summary: summaryLua,
  pushOutbox: pushOutboxLua,
  leaseOutbox: leaseOutboxLua,
  ackOutbox: ackOutboxLua,
  retryOutbox: retryOutboxLua,
  wakeDue: wakeDueLua,
  reset: resetLua,
};

/** The scripts of the gate, ready to call on one connection. */
export type GateScripts = { [K in keyof typeof sources]: ReturnType<typeof defineScript> };

export function gateScripts(redis: RedisConnection): GateScripts {
  const entries = Object.entries(sources).map(([name, lua]) => [name, defineScript(redis, `gate_${name}`, lua)]);
  return Object.fromEntries(entries) as GateScripts; // same keys as sources
}
