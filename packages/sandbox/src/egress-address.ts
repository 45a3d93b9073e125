import { lookup } from "node:dns/promises";
import { isIPv6, type LookupFunction } from "node:net";
import ipaddr from "ipaddr.js";

/** Public by number, but answered by the machine's own host: Azure's WireServer. */
const hostServices = new Set(["168.63.129.16"]);

/**
 * Whether an IP address is out on the public internet: not loopback, private, link-local (cloud
 * metadata lives there), carrier-grade NAT, multicast, reserved, nor an IPv6 form that wraps an
 * IPv4 address. Anything unparsable is not public.
 */
export function isPublicAddress(address: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.process(address);
  if (parsed.range() !== "unicast" || hostServices.has(parsed.toString())) return false;
  // The only IPv6 block handed out for the internet; elsewhere hide old embeddings of IPv4 such as ::7f00:1.
  return parsed instanceof ipaddr.IPv4 || parsed.match(ipaddr.IPv6.parseCIDR("2000::/3"));
}

/** Finds all addresses of a host name. */
export type ResolveHost = (hostname: string) => Promise<string[]>;

/** The system's resolver. */
export const resolveBySystem: ResolveHost = async (hostname) =>
  (await lookup(hostname, { all: true })).map((entry) => entry.address);

/** Which addresses a request may go to. */
export interface AddressPolicy {
  allows(address: string): boolean;
  resolve: ResolveHost;
}

/** The address that a URL's host name spells out, or undefined for a name. */
export function literalAddress(hostname: string): string | undefined {
  const literal = hostname.replace(/^\[(.*)\]$/, "$1");
  return ipaddr.isValid(literal) ? literal : undefined;
}

/**
 * The addresses to connect to. All addresses of a name must be allowed: a name that mixes public and
 * private answers is an attack. The caller connects to what is returned and never resolves again,
 * so a name that changes its answer gains nothing.
 */
export async function pinnedAddresses(hostname: string, policy: AddressPolicy): Promise<[string, ...string[]]> {
  const literal = literalAddress(hostname);
  const [first, ...others] = literal === undefined ? await policy.resolve(hostname) : [literal];
  if (first === undefined) throw new Error(`the host ${hostname} has no address`);
  if (![first, ...others].every((address) => policy.allows(address))) {
    throw new Error(`the host ${hostname} is not on the public internet: refused`);
  }
  return [first, ...others];
}

/** Answers every question of a socket with addresses that were checked. */
export function lookupOf(addresses: readonly [string, ...string[]]): LookupFunction {
  const entries = addresses.map((address) => ({ address, family: isIPv6(address) ? 6 : 4 }));
  return (_hostname, options, callback) => {
    if (options.all === true) callback(null, entries);
    else callback(null, addresses[0], isIPv6(addresses[0]) ? 6 : 4);
  };
}
