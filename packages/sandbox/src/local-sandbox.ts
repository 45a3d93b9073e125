import { chmod, chown } from "node:fs/promises";
import { join } from "node:path";
import type { EgressSettings } from "./egress-policy.ts";
import { createEgressProxy, type EgressProxy } from "./egress.ts";
import {
  Guest,
  guestLaunch,
  type GuestProfile,
  type GuestReport,
  type Preparation,
  profileKey,
} from "./guest.ts";
import type { Views } from "./host.ts";
import type { HostParts, TierPlan } from "./launch.ts";
import { checkRequest, harvestFiles, verdictOf, withoutRun, writeFiles } from "./run.ts";
import {
  kernelLimits,
  type Sandbox,
  type SandboxCommand,
  type SandboxEvent,
  type SandboxLimits,
  type SandboxRequest,
  type SandboxResult,
  type SandboxSession,
  type SandboxTier,
} from "./sandbox.ts";
import { type LocalSession, openSession } from "./session.ts";
import type { Slot, SlotStore } from "./slot.ts";
import { CompiledCode, compileTo, WarmPool } from "./warm-pool.ts";

export interface LocalSandboxOptions {
  tier: SandboxTier;
  plan: TierPlan;
  parts: HostParts;
  views: Views;
  store: SlotStore;
  /** A directory for sockets of proxies. */
  directory: string;
  slots: number;
  warm: number;
  sessions: number;
  egress: EgressSettings | undefined;
  onEvent(event: SandboxEvent): void;
}

interface Run {
  request: SandboxRequest;
  limits: SandboxLimits;
  profile: GuestProfile;
  signal: AbortSignal;
  egressSocket: string | undefined;
  /** Whether the program may start; asked once. */
  begin(): Promise<boolean>;
}

const attempts = 3;
/** User id and path of compiled code inside, in a tier that gives programs paths of their own. */
const insideUser = 1000;
const codeInside = "/opt/larkline/code";

/** Runs programs in sandboxes of this host, in one proved tier. */
export class LocalSandbox implements Sandbox {
  readonly tier: SandboxTier;
  readonly #options: LocalSandboxOptions;
  readonly #runs: Gate;
  readonly #sessionPlaces: Gate;
  readonly #warm: WarmPool;
  readonly #code: CompiledCode;
  readonly #closing = new AbortController();
  readonly #active = new Set<Promise<unknown>>();
  readonly #sessions = new Set<LocalSession>();
  #proxyCount = 0;

  constructor(options: LocalSandboxOptions) {
    this.tier = options.tier;
    this.#options = options;
    this.#runs = new Gate(options.slots);
    this.#sessionPlaces = new Gate(options.sessions);
    this.#code = new CompiledCode(options.directory);
    this.#warm = new WarmPool({
      size: options.warm,
      clock: options.parts.clock,
      boot: async (profile, signal) => await this.#bootAhead(profile, signal),
      discard: async (guest) => await this.#discard(guest),
    });
  }

  async run(request: SandboxRequest): Promise<SandboxResult> {
    return await this.#track(this.#run(request));
  }

  async open(command: SandboxCommand): Promise<SandboxSession> {
    return await this.#track(this.#open(command));
  }

  /** Kills everything inside; running programs end as `cancelled`. Leaves the directories, which belong to the caller. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([...this.#sessions].map(async (session) => await session.close()));
    await this.#warm.close();
    while (this.#active.size > 0) await Promise.allSettled(this.#active);
  }

  /** `close` waits for it. */
  async #track<T>(work: Promise<T>): Promise<T> {
    this.#active.add(work);
    return await work.finally(() => this.#active.delete(work));
  }

  async #open(command: SandboxCommand): Promise<SandboxSession> {
    const { signal } = this.#closing;
    if (signal.aborted) throw closedError();
    const leave = this.#sessionPlaces.tryEnter();
    if (leave === undefined) {
      throw new Error(`There are ${this.#options.sessions} sessions already.`);
    }
    const opening = openSession(command, {
      ...this.#options,
      clock: this.#options.parts.clock,
      openProxy: async (allow, slot) => await this.#openProxy(allow, slot),
    });
    const session = await opening.catch((error: unknown) => {
      leave();
      throw error;
    });
    this.#sessions.add(session);
    void this.#forget(session, leave);
    if (!signal.aborted) return session;
    await session.close();
    throw closedError();
  }

  async #forget(session: LocalSession, leave: () => void): Promise<void> {
    await session.wiped;
    this.#sessions.delete(session);
    leave();
  }

  async #run(request: SandboxRequest): Promise<SandboxResult> {
    if (this.#closing.signal.aborted) return withoutRun("refused", "The sandbox is closed.");
    const checked = await checkRequest(request, this.#options);
    if (typeof checked === "string") return withoutRun("refused", checked);
    const { limits, readable } = checked;
    const profile: GuestProfile = {
      runtime: request.program.runtime,
      readable,
      limits: kernelLimits(limits),
      prepared: preparationOf(request),
    };
    const signal = AbortSignal.any([request.signal, this.#closing.signal]);
    const leave = await this.#runs.enter(signal).catch(() => undefined);
    if (leave === undefined) {
      return withoutRun("cancelled", "The run was cancelled before it began.");
    }
    try {
      return await this.#withNetwork({
        request,
        limits,
        profile,
        signal,
        begin: beginOnce(request),
      });
    } catch (error) {
      this.#tell("boot_failed", error instanceof Error ? error.message : String(error));
      return withoutRun("crashed", "The sandbox could not be started.");
    } finally {
      leave();
    }
  }

  async #withNetwork(run: Omit<Run, "egressSocket">): Promise<SandboxResult> {
    const { network = "none" } = run.request;
    if (network === "none") return await this.#runInGuest({ ...run, egressSocket: undefined });
    const opened = await this.#openProxy(network.allow).catch((error: unknown) => String(error));
    if (typeof opened === "string") {
      return withoutRun("refused", `The network policy is not valid: ${opened}`);
    }
    const { proxy, socket } = opened;
    try {
      const result = await this.#runInGuest({ ...run, egressSocket: socket });
      return { ...result, denied: proxy.denied() };
    } finally {
      await proxy.close();
    }
  }

  /** Replaces a guest that ends before the program has begun, by a warm one or one on another slot. */
  async #runInGuest(run: Run): Promise<SandboxResult> {
    for (let i = 0; i < attempts && !run.signal.aborted; i += 1) {
      const guest = await this.#guestFor(run);
      const result = guest === undefined ? undefined : await this.#runIn(guest, run);
      if (result !== undefined) return result;
    }
    return run.signal.aborted
      ? withoutRun("cancelled", "The run was cancelled before it began.")
      : withoutRun("crashed", "The sandbox did not start.");
  }

  async #guestFor({ profile, signal, egressSocket }: Run): Promise<Guest | undefined> {
    const warm = egressSocket === undefined ? this.#warm.take(profile) : undefined;
    return warm ?? (await this.#boot(profile, { signal, egressSocket }));
  }

  /** Undefined when the guest ended before the program began. */
  async #runIn(guest: Guest, run: Run): Promise<SandboxResult | undefined> {
    try {
      return await this.#give(guest, run);
    } finally {
      void this.#track(this.#discard(guest)); // the caller need not wait for the wiping
    }
  }

  async #give(
    guest: Guest,
    { request, limits, signal, begin }: Run,
  ): Promise<SandboxResult | undefined> {
    const { program, env = {}, onProgress, onOutput } = request;
    const files = program.files ?? [];
    try {
      await writeFiles(files, guest.slot);
    } catch {
      return withoutRun(
        "disk_limit",
        `The files of the program do not fit into ${limits.diskMb} MB.`,
      );
    }
    if (!(await begin())) return withoutRun("cancelled", "The run was not to begin any more.");
    const report = await guest.run({ program, limits, env, signal, onProgress, onOutput });
    if (!report.hasBegun && report.stop === undefined) {
      this.#tell("boot_failed", "a sandbox ended before its program began");
      return undefined;
    }
    const harvest = report.end.isStuck
      ? { files: [], skipped: [] }
      : await harvestFiles(guest.slot, files);
    return {
      ...verdictOf(report, { program, limits }),
      ...factsOf(report, guest.slot),
      ...harvest,
    };
  }

  /** Undefined when it did not boot; its slot is free again then. */
  async #boot(
    profile: GuestProfile,
    { signal, egressSocket }: { signal: AbortSignal; egressSocket: string | undefined },
  ): Promise<Guest | undefined> {
    const { store, plan, parts } = this.#options;
    const { clock } = parts;
    const slot = await store.take(profile.limits);
    let guest: Guest;
    try {
      if (egressSocket !== undefined) await giveSocket(egressSocket, slot);
      const code = await this.#codeOf(profile, slot);
      const launch = guestLaunch(
        { ...profile, readable: [...profile.readable, ...code] },
        egressSocket,
      );
      guest = new Guest(await plan.plan(launch, slot), slot, { clock, compiled: code[0]?.path });
    } catch (error) {
      await store.giveBack(slot);
      throw error;
    }
    if (await guest.boot(signal)) return guest;
    await this.#discard(guest);
    if (!signal.aborted) this.#tell("boot_failed", await bootProblem(guest));
    return undefined;
  }

  /** The compiled code for a guest on a slot, as a readable path; empty when there is none. */
  async #codeOf(profile: GuestProfile, slot: Slot): Promise<GuestProfile["readable"]> {
    const { hasOwnPaths } = this.#options.plan;
    const user = hasOwnPaths ? insideUser : (slot.user ?? process.getuid?.() ?? 0);
    const source = await this.#code.directoryFor(profileKey(profile), user);
    return source === undefined ? [] : [{ source, path: hasOwnPaths ? codeInside : source }];
  }

  /** Compiles the modules of a profile once, in a guest that never gets a job. */
  async #compile(profile: GuestProfile, prepared: Preparation, signal: AbortSignal): Promise<void> {
    const key = profileKey(profile);
    if (!this.#code.begin(key)) return;
    const guest = await this.#boot(profile, { signal, egressSocket: undefined });
    if (guest === undefined) return;
    const isCompiled = await guest.compile(
      { ...prepared, compileTo },
      profile.limits.diskMb,
      signal,
    );
    guest.kill();
    const { isStuck } = await guest.ended;
    if (isCompiled && !isStuck) {
      await this.#code.keep(key, join(guest.slot.directory, compileTo)).catch((error: unknown) => {
        this.#tell(
          "boot_failed",
          `not compiled: ${error instanceof Error ? error.message : String(error)}`,
        );
      });
    }
    await this.#discard(guest);
  }

  /** A prepared guest to keep; undefined when booting or preparing failed: the next run boots a fresh one and reports why. */
  async #bootAhead(profile: GuestProfile, signal: AbortSignal): Promise<Guest | undefined> {
    const { prepared, limits } = profile;
    if (prepared !== undefined) await this.#compile(profile, prepared, signal);
    const guest = await this.#boot(profile, { signal, egressSocket: undefined });
    if (guest === undefined || prepared === undefined) return guest;
    if (await guest.prepare(prepared, limits.diskMb, signal)) return guest;
    await this.#discard(guest);
    if (!signal.aborted) this.#tell("boot_failed", `not prepared: ${await bootProblem(guest)}`);
    return undefined;
  }

  /** Kills a guest if it still runs, and frees its slot. */
  async #discard(guest: Guest): Promise<void> {
    guest.kill();
    const { isStuck } = await guest.ended;
    const { store } = this.#options;
    await (isStuck ? store.discard(guest.slot) : store.giveBack(guest.slot));
  }

  async #openProxy(
    allow: readonly string[],
    slot?: Slot,
  ): Promise<{ proxy: EgressProxy; socket: string }> {
    this.#proxyCount += 1;
    const socket = join(this.#options.directory, `net-${this.#proxyCount}.sock`);
    const { egress } = this.#options;
    // A session lives for days, so its traffic has no bound.
    const unbounded = slot === undefined ? {} : { bytes: Infinity, attempts: Infinity };
    const proxy = await createEgressProxy({
      ...egress,
      clock: this.#options.parts.clock,
      limits: { ...unbounded, ...egress?.limits },
      allow,
      socketPath: socket,
    });
    try {
      if (slot !== undefined) await giveSocket(socket, slot);
      return { proxy, socket };
    } catch (error) {
      await proxy.close();
      throw error;
    }
  }

  #tell(event: SandboxEvent["event"], detail: string): void {
    this.#options.onEvent({ event, detail });
  }
}

/** Asks the caller once: a guest that ends before its program has begun is replaced without asking again. */
function beginOnce({ begin }: SandboxRequest): Run["begin"] {
  let asked: Promise<boolean> | undefined;
  return async () => await (asked ??= begin?.() ?? Promise.resolve(true));
}

/** What a sandbox for the same tool loads before its call; undefined: it only boots. */
function preparationOf({ program, env = {} }: SandboxRequest): Preparation | undefined {
  if (!("module" in program) || program.preparation === undefined) return undefined;
  return { module: program.module, preparation: program.preparation, env };
}

const closedError = (): Error => new Error("The sandbox is closed.");

/** Lets only the slot's user use the proxy. */
async function giveSocket(path: string, slot: Slot): Promise<void> {
  await chmod(path, 0o600);
  if (slot.user !== undefined) await chown(path, slot.user, slot.user);
}

async function bootProblem(guest: Guest): Promise<string> {
  const { exitCode, signal, spawnError } = await guest.ended;
  return `${spawnError ?? signal ?? `exit code ${exitCode}`}: ${guest.lastWords().slice(0, 500)}`;
}

function factsOf(
  report: GuestReport,
  slot: Slot,
): Pick<SandboxResult, "stdout" | "stderr" | "denied" | "wallMs"> {
  const peakMemoryBytes = slot.group?.peakBytes();
  const cpuMs = slot.group?.cpuMs();
  return {
    stdout: report.stdout,
    stderr: report.stderr,
    denied: [],
    wallMs: Math.round(report.wallMs),
    ...(peakMemoryBytes === undefined ? {} : { peakMemoryBytes }),
    ...(cpuMs === undefined ? {} : { cpuMs }),
  };
}

/* ---- Places ---- */

/** A semaphore: callers get places in the order in which they came. */
export class Gate {
  readonly #waiting = new Set<() => void>();
  #free: number;

  constructor(places: number) {
    this.#free = places;
  }

  /** Resolves with a function that gives the place back, to be called once; rejects with the signal's reason on abort. */
  async enter(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.#free === 0) await this.#turn(signal);
    else this.#free -= 1;
    return () => this.#leave();
  }

  /** The same, but does not wait: undefined when there is no place. */
  tryEnter(): (() => void) | undefined {
    if (this.#free === 0) return undefined;
    this.#free -= 1;
    return () => this.#leave();
  }

  async #turn(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const enter = (): void => {
      this.#waiting.delete(enter);
      resolve();
    };
    const giveUp = (): void => {
      this.#waiting.delete(enter);
      reject(signal.reason);
    };
    this.#waiting.add(enter);
    signal.addEventListener("abort", giveUp, { once: true });
    await promise.finally(() => signal.removeEventListener("abort", giveUp));
  }

  #leave(): void {
    const [next] = this.#waiting;
    if (next === undefined) this.#free += 1;
    else next();
  }
}
