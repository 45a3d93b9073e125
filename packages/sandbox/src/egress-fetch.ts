import type { LookupFunction } from "node:net";
import type { buildConnector } from "undici";
import {
  type AddressPolicy,
  type AllowList,
  allowListOf,
  isPublicAddress,
  literalAddress,
  lookupOf,
  pinnedAddresses,
  resolveBySystem,
  type ResolveHost,
} from "./egress-policy.ts";

export interface GuardedFetchOptions {
  /** The hosts that may be reached, as in a `NetworkPolicy`. Default: every public one. */
  allow?: readonly string[];
  /** How names become addresses. Default: the system's resolver. */
  resolve?: ResolveHost;
  /** Also connect to addresses that this accepts, such as the service next door that an operator named. */
  allowPrivate?: (address: string) => boolean;
}

/** The class behind Node's own `fetch`, whose types are those of another release of the same library. */
type Dispatcher = NonNullable<RequestInit["dispatcher"]>;

const connectMs = 10_000;

/** A look-up for sockets that finds only addresses which the policy lets through. */
function checkedLookup(policy: AddressPolicy): LookupFunction {
  const answer = async (
    ...[hostname, options, callback]: Parameters<LookupFunction>
  ): Promise<void> => {
    let addresses;
    try {
      addresses = await pinnedAddresses(hostname, policy);
    } catch (error) {
      return callback(error instanceof Error ? error : new Error(String(error)), "");
    }
    lookupOf(addresses)(hostname, options, callback);
  };
  return (...question) => void answer(...question);
}

/** Refuses at the moment of connecting, which redirects and names with changing answers cannot go round. */
function guarded(
  connect: buildConnector.connector,
  { policy, allows }: { policy: AddressPolicy; allows: AllowList | undefined },
): buildConnector.connector {
  return (options, callback) => {
    const host = options.hostname.toLowerCase().replace(/\.$/, "");
    const port = Number(options.port) || (options.protocol === "https:" ? 443 : 80);
    const literal = literalAddress(host);
    if (allows !== undefined && !allows({ host, port })) {
      callback(new Error(`the host ${host}:${port} is not on the allow-list: refused`), null);
    } else if (literal !== undefined && !policy.allows(literal)) {
      callback(new Error(`the host ${host} is not on the public internet: refused`), null);
    } else connect(options, callback);
  };
}

/** Loaded when it is needed first: every child of a tool imports this package, few of them fetch. */
async function openDispatcher(
  policy: AddressPolicy,
  allows: AllowList | undefined,
): Promise<Dispatcher> {
  const { Agent, buildConnector: connectorOf } = await import("undici");
  const connect = connectorOf({ timeout: connectMs, lookup: checkedLookup(policy) });
  const agent: unknown = new Agent({ connect: guarded(connect, { policy, allows }) });
  return agent as Dispatcher; // see there
}

/**
 * A `fetch` for code of the runner itself that follows addresses from outside: connects to public
 * addresses only, and to allowed hosts only where there is an allow-list. The check is made at every
 * connection, on the address that is dialled. A refusal rejects with a TypeError that says why.
 * Throws at an allow-list that names no hosts.
 */
export function createGuardedFetch(options: GuardedFetchOptions = {}): typeof fetch {
  const { resolve = resolveBySystem, allowPrivate = () => false } = options;
  const policy = {
    resolve,
    allows: (address: string) => isPublicAddress(address) || allowPrivate(address),
  };
  const allows = options.allow === undefined ? undefined : allowListOf(options.allow);
  let dispatcher: Promise<Dispatcher> | undefined;
  return async (input, init) => {
    dispatcher ??= openDispatcher(policy, allows);
    try {
      return await fetch(input, { ...init, dispatcher: await dispatcher });
    } catch (error) {
      // Node says "fetch failed" and hides the reason one level down.
      if (!(error instanceof TypeError) || !(error.cause instanceof Error)) throw error;
      throw new TypeError(error.cause.message, { cause: error });
    }
  };
}
