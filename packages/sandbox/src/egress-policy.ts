import { lookup } from "node:dns/promises";
import { connect, isIPv6, type LookupFunction, type Socket } from "node:net";
import { type Clock, pause, systemClock } from "@larkline/protocol/clock";
import ipaddr from "ipaddr.js";

/** What was decided about one attempt to get out. */
export interface EgressDecision extends EgressTarget {
  allowed: boolean;
  /** In words, for a model. */
  reason: string;
}

/** Bounds of everything that one program sends and fetches; `Infinity` for what should have none. */
export interface EgressLimits {
  /** Bytes in both directions, together. Default 64 MiB. */
  bytes: number;
  /** Connections at the same moment. Default 64. */
  connections: number;
  /** Attempts, the refused ones included. Default 1000. */
  attempts: number;
  /** For finding and reaching a host, ms. Default 10,000. */
  connectMs: number;
  /** Silence after which a connection is closed, ms. Default 60,000. */
  idleMs: number;
}

/** What operators decide about the ways out, for all programs. */
export interface EgressSettings {
  /** How names become addresses. Default: the system's resolver. */
  resolve?: ResolveHost;
  /** Also dial addresses that this accepts, such as those of a service in the company's own network. */
  allowPrivate?: (address: string) => boolean;
  limits?: Partial<EgressLimits>;
}

export interface EgressGateOptions extends EgressSettings {
  allow: readonly string[];
  onDecision?: (decision: EgressDecision) => void;
  clock?: Clock;
}

/** A way that was looked up and checked, or the reason why there is none. */
export type EgressPassage =
  | { ok: true; target: EgressTarget; addresses: [string, ...string[]] }
  | { ok: false; reason: string };

export const defaultEgressLimits: EgressLimits = {
  bytes: 64 * 1_048_576,
  connections: 64,
  attempts: 1_000,
  connectMs: 10_000,
  idleMs: 60_000,
};

const maxDenied = 50;

function refused(reason: string): EgressPassage {
  return { ok: false, reason };
}

/** Decides about each attempt of one program to get out, and remembers what it refused. */
export class EgressGate {
  readonly limits: EgressLimits;
  readonly #options: EgressGateOptions;
  readonly #clock: Clock;
  readonly #allows: (target: EgressTarget) => boolean;
  readonly #denied = new Set<string>();
  #attempts = 0;
  #bytes = 0;
  /** Look-ups hold one of the few threads of the process, so one program gets one at a time. */
  #lookups: Promise<unknown> = Promise.resolve();

  /** Throws at an allow-list that names no hosts. */
  constructor(options: EgressGateOptions) {
    this.#options = options;
    this.#allows = allowListOf(options.allow);
    this.limits = { ...defaultEgressLimits, ...options.limits };
    this.#clock = options.clock ?? systemClock;
  }

  /** What was refused, each once, such as `denied: evil.test:80 (not on the allow-list)`. */
  denied(): string[] {
    return [...this.#denied];
  }

  /** Counts bytes; false when there were too many. */
  pays(bytes: number): boolean {
    const before = this.#bytes;
    this.#bytes += bytes;
    if (this.#bytes <= this.limits.bytes) return true;
    if (before <= this.limits.bytes) {
      this.#note(`denied: more than ${this.limits.bytes} bytes over the network`);
    }
    return false;
  }

  /** Remembers that a connection was turned away at the door. */
  crowded(): void {
    this.#note(`denied: more than ${this.limits.connections} connections at once`);
  }

  /** Says whether the target may be reached, and at which addresses: looked up here, once, and checked. */
  async ask(target: EgressTarget): Promise<EgressPassage> {
    const passage = await this.#passage(target);
    const reason = passage.ok ? "allowed" : passage.reason;
    const shown = { host: target.host.slice(0, 253), port: target.port };
    if (!passage.ok) this.#note(`denied: ${shown.host}:${shown.port} (${reason})`);
    this.#options.onDecision?.({ ...shown, allowed: passage.ok, reason });
    return passage;
  }

  async #passage(target: EgressTarget): Promise<EgressPassage> {
    this.#attempts += 1;
    if (this.#attempts > this.limits.attempts) {
      return refused(`more than ${this.limits.attempts} attempts`);
    }
    if (this.#bytes > this.limits.bytes) return refused(`more than ${this.limits.bytes} bytes`);
    if (!isHostName(target.host)) return refused("names only, no addresses");
    if (!this.#allows(target)) return refused("not on the allow-list");
    const addresses = await this.#resolve(target.host);
    if (addresses === undefined) return refused("the name cannot be resolved");
    const [first, ...others] = addresses.filter(
      (address) => isPublicAddress(address) || this.#options.allowPrivate?.(address) === true,
    );
    if (first === undefined) {
      return refused("the name leads to an address that is not on the public internet");
    }
    return { ok: true, target, addresses: [first, ...others] };
  }

  /**
   * Connects to one of the addresses that were checked. Rejects when none answers in time. `halfOpen`: a
   * host that has said everything may still be written to.
   */
  async dial(passage: EgressPassage & { ok: true }, { halfOpen = false } = {}): Promise<Socket> {
    const { connectMs, idleMs } = this.limits;
    const socket = connect({
      host: passage.target.host,
      port: passage.target.port,
      allowHalfOpen: halfOpen,
      lookup: lookupOf(passage.addresses),
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: 500,
    });
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const cancelTimer = this.#clock.after(connectMs, () => socket.destroy(new Error("too slow")));
    socket.once("connect", resolve).on("error", reject);
    try {
      await promise;
      return socket.setTimeout(idleMs, () => socket.destroy());
    } finally {
      cancelTimer();
    }
  }

  async #resolve(host: string): Promise<string[] | undefined> {
    const resolve = this.#options.resolve ?? resolveBySystem;
    const looked = this.#lookups.then(() => resolve(host)).catch(() => undefined);
    this.#lookups = looked;
    const answered = new AbortController();
    const late = pause(this.#clock, this.limits.connectMs, answered.signal).then(() => undefined);
    return await Promise.race([looked, late]).finally(() => answered.abort());
  }

  #note(text: string): void {
    if (this.#denied.size < maxDenied) this.#denied.add(text);
  }
}

/* ---- Allow-lists ---- */

/** Where a program wants to go. */
export interface EgressTarget {
  /** Lower case, without a trailing dot. */
  host: string;
  port: number;
}

/** Who may be talked to. */
export type AllowList = (target: EgressTarget) => boolean;

const hostName = /^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*$/;
/** A last label of digits or 0x... is how URLs spell addresses; such a thing is no name. */
const numericEnd = /(^|\.)(\d+|0x[0-9a-f]*)$/;
const defaultPorts = new Set([80, 443]);

/** Whether this is a name of the DNS, as opposed to an address in any of its spellings. */
export function isHostName(host: string): boolean {
  return hostName.test(host) && !numericEnd.test(host);
}

interface AllowRule {
  /** The name, or the end of it with the dot in front. */
  name: string;
  wildcard: boolean;
  port: number | undefined;
}

function parseRule(entry: string): AllowRule {
  const [, wildcard, name = "", port] =
    /^(\*\.)?([^:]+?)\.?(?::(\d{1,5}))?$/.exec(entry.toLowerCase()) ?? [];
  const number = port === undefined ? undefined : Number(port);
  if (!isHostName(name) || number === 0 || (number ?? 0) > 65_535) {
    throw new Error(
      `${JSON.stringify(entry)} names no host: write api.example.com, *.example.org or host:8443`,
    );
  }
  return {
    name: wildcard === undefined ? name : `.${name}`,
    wildcard: wildcard !== undefined,
    port: number,
  };
}

/**
 * Reads an allow-list of names: `api.example.com`, `*.example.org` (every name below it, not itself),
 * `host:8443`; without a port 80 and 443 are meant. Throws at an entry that is no name, such as an
 * address, a URL or `*`.
 */
export function allowListOf(entries: readonly string[]): AllowList {
  const rules = entries.map(parseRule);
  return ({ host, port }) =>
    rules.some(
      (rule) =>
        (rule.port === undefined ? defaultPorts.has(port) : rule.port === port) &&
        (rule.wildcard ? host.endsWith(rule.name) : host === rule.name),
    );
}

/** Reads `host:port` as in a CONNECT request; undefined for anything else. */
export function targetOfAuthority(authority: string): EgressTarget | undefined {
  // Only these characters: the URL parser would skip over a path, a user name or white space.
  if (!/^[^\s/\\?#@%]{1,255}:\d{1,5}$/.test(authority)) return undefined;
  const url = URL.parse(`http://${authority}`);
  return url === null ? undefined : targetOfUrl(url);
}

/** Where a URL leads; its parser has already turned every spelling of an address into the dotted one. */
export function targetOfUrl(url: URL): EgressTarget {
  const port = url.port === "" ? (url.protocol === "https:" ? 443 : 80) : Number(url.port);
  return { host: url.hostname.replace(/\.$/, ""), port };
}

/* ---- Addresses ---- */

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
export async function pinnedAddresses(
  hostname: string,
  policy: AddressPolicy,
): Promise<[string, ...string[]]> {
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
