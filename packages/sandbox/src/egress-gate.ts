import { connect, type Socket } from "node:net";
import { isPublicAddress, lookupOf, resolveBySystem, type ResolveHost } from "./egress-address.ts";
import { allowListOf, isHostName, type EgressTarget } from "./egress-allow-list.ts";

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

async function within<T>(work: Promise<T>, ms: number): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error("too slow")), ms);
  try {
    return await Promise.race([work, promise]);
  } finally {
    clearTimeout(timer);
  }
}

function refused(reason: string): EgressPassage {
  return { ok: false, reason };
}

/** Decides about each attempt of one program to get out, and remembers what it refused. */
export class EgressGate {
  readonly limits: EgressLimits;
  readonly #options: EgressGateOptions;
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
    if (before <= this.limits.bytes) this.#note(`denied: more than ${this.limits.bytes} bytes over the network`);
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
    if (this.#attempts > this.limits.attempts) return refused(`more than ${this.limits.attempts} attempts`);
    if (this.#bytes > this.limits.bytes) return refused(`more than ${this.limits.bytes} bytes`);
    if (!isHostName(target.host)) return refused("names only, no addresses");
    if (!this.#allows(target)) return refused("not on the allow-list");
    const addresses = await this.#resolve(target.host);
    if (addresses === undefined) return refused("the name cannot be resolved");
    const [first, ...others] = addresses.filter(
      (address) => isPublicAddress(address) || this.#options.allowPrivate?.(address) === true,
    );
    if (first === undefined) return refused("the name leads to an address that is not on the public internet");
    return { ok: true, target, addresses: [first, ...others] };
  }

  async #resolve(host: string): Promise<string[] | undefined> {
    const resolve = this.#options.resolve ?? resolveBySystem;
    const looked = this.#lookups.then(() => resolve(host)).catch(() => undefined);
    this.#lookups = looked;
    return await within(looked, this.limits.connectMs).catch(() => undefined);
  }

  #note(text: string): void {
    if (this.#denied.size < maxDenied) this.#denied.add(text);
  }
}

/**
 * Connects to one of the addresses that were checked. Rejects when none answers in time. `halfOpen`: a
 * host that has said everything may still be written to.
 */
export async function dial(
  passage: EgressPassage & { ok: true },
  limits: EgressLimits,
  { halfOpen = false } = {},
): Promise<Socket> {
  const socket = connect({
    host: passage.target.host,
    port: passage.target.port,
    allowHalfOpen: halfOpen,
    lookup: lookupOf(passage.addresses),
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: 500,
  });
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const timer = setTimeout(() => socket.destroy(new Error("too slow")), limits.connectMs);
  socket.once("connect", resolve).on("error", reject);
  try {
    await promise;
    return socket.setTimeout(limits.idleMs, () => socket.destroy());
  } finally {
    clearTimeout(timer);
  }
}
