import {
  pause,
  systemClock,
  systemRandom,
  type Clock,
  type Random,
} from "@larkline/protocol/clock";
import {
  argumentsHashOf,
  type HandoffAnswer,
  type HandoffEntry,
  attemptIdOf,
  type ToolJob,
} from "@larkline/protocol/runner";
import type { CallTiming, ToolEffect, ToolIdentity, ToolOutcome } from "@larkline/protocol/tool";
import type { RunnerHandoff } from "@larkline/store/runners";

interface CallHandoffOptions {
  handoff: Pick<RunnerHandoff, "add" | "answerTo" | "followAnswers" | "identityIn" | "notify">;
  runner: string;
  onError(error: unknown): void;
  /** Waits between tries, in ms; the last one again and again. */
  backoffMs?: readonly number[];
  clock?: Clock;
  random?: Random;
}

/** Progress and log lines of a running call. */
export type CallReported =
  | { kind: "progress"; fraction: number; detail: string }
  | { kind: "log"; text: string };

export interface DeliveryDetails {
  timing?: CallTiming;
  /** The call was not run. This outcome does not end a call that another process has started. */
  notRun?: boolean;
  /** Blob that holds the text of the outcome's `stored`. */
  blobId?: string;
  /** Digest of the token that the platform has refused. */
  refusedToken?: string;
}

const defaultBackoffMs = [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000] as const;

/** Pause before the question is repeated: its notification or the answer's may be lost. */
const askAgainMs = [100, 200, 400, 800, 1_000, 1_000, 1_000] as const;

/**
 * Reports the calls of this runner to workers. All entries go through the runner's hand-off stream, in order, and
 * survive the death of runner and worker; a worker moves them into the session.
 */
export class CallHandoff {
  readonly #options: CallHandoffOptions;
  readonly #clock: Clock;
  readonly #random: Random;
  /** Calls that wait for the answer to their question. */
  readonly #asking = new Map<string, (answer: HandoffAnswer) => void>();
  /** Calls with entries on their way to the stream: later entries must not overtake them. */
  readonly #handedIn = new WeakSet<ToolJob>();

  constructor(options: CallHandoffOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? systemRandom;
  }

  /** Listens to answers until `signal` aborts. */
  async open(signal: AbortSignal): Promise<void> {
    await this.#options.handoff.followAnswers(
      (answer) => this.#asking.get(answer.ask)?.(answer),
      signal,
    );
  }

  /** Announces the start of a call that may run twice. The runner does not wait for it. */
  begins(job: ToolJob, effect: ToolEffect): void {
    const { handoff, onError } = this.#options;
    this.#handedIn.add(job);
    void handoff.add({ ...this.#about(job), kind: "begun", effect }, job.worker).catch(onError);
  }

  /**
   * Asks whether a call may start, and waits for the answer. Undefined when `signal` aborts before the call may start:
   * then it counts as not started, whatever the answer would have been. `tool`: what it says of calls that began before.
   */
  async mayStart(
    job: ToolJob,
    effect: ToolEffect,
    signal: AbortSignal,
    tool: Repeating = {},
  ): Promise<"run" | "closed" | "started_before" | LookOnly | undefined> {
    const permission = await this.#permission(job, { effect, signal, tool });
    return permission?.answer === "look" ? lookOf(permission) : permission?.answer;
  }

  /**
   * The same of a call that acts as a person or the bot: `run` comes with the identity. Where that does not open, the call counts
   * as not started.
   */
  async mayStartAs(
    job: ToolJob,
    effect: ToolEffect,
    signal: AbortSignal,
    tool: Repeating = {},
  ): Promise<ToolIdentity | "closed" | "started_before" | LookOnly | undefined> {
    const answer = await this.#permission(job, { effect, signal, tool, identity: true });
    if (answer?.answer !== "run" && answer?.answer !== "look") return answer?.answer;
    const identity = this.#options.handoff.identityIn(answer, {
      session: job.session,
      callId: attemptIdOf(job),
    });
    if (answer.answer === "look") {
      return identity === undefined ? "started_before" : { ...lookOf(answer), identity };
    }
    if (identity === undefined) await this.#giveBack(job, answer.ask);
    return identity;
  }

  async #permission(
    job: ToolJob,
    question: Omit<Question, "ask" | "answered">,
  ): Promise<HandoffAnswer | undefined> {
    const { signal } = question;
    this.#handedIn.add(job);
    const ask = this.#random.uuid();
    const { promise, resolve } = Promise.withResolvers<HandoffAnswer | undefined>();
    const stop = (): void => resolve(undefined);
    this.#asking.set(ask, resolve);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    try {
      const answer = await this.#ask(job, { ...question, ask, answered: promise });
      if (answer !== undefined && (answer.answer !== "run" || !signal.aborted)) return answer;
      await this.#giveBack(job, ask);
      return undefined;
    } finally {
      this.#asking.delete(ask);
      signal.removeEventListener("abort", stop);
    }
  }

  /** It follows the question in the stream, so it revokes the answer to that. */
  async #giveBack(job: ToolJob, ask: string): Promise<void> {
    await this.#add(job, { ...this.#about(job), kind: "returned", ask });
  }

  /**
   * Answers a call. A result that cannot be handed in would turn a `once` call into an unknown one, so it is tried up
   * to the call's deadline, and for some seconds in any case, before this rejects.
   */
  async deliver(job: ToolJob, outcome: ToolOutcome, details: DeliveryDetails = {}): Promise<void> {
    await this.#add(job, { ...this.#about(job), kind: "outcome", outcome, ...details });
  }

  /** Publishes what a call reports while it runs. */
  async report(job: ToolJob, reported: CallReported): Promise<void> {
    this.#handedIn.add(job);
    await this.#options.handoff.add({ ...this.#about(job), ...reported }, job.worker);
  }

  async #ask(job: ToolJob, question: Question): Promise<HandoffAnswer | undefined> {
    const { handoff, onError } = this.#options;
    const { answered, signal, effect, ask, identity, tool } = question;
    const { repeatMs, looks = false } = tool;
    const asked = {
      effect,
      ask,
      ...(identity === undefined ? {} : { identity }),
      ...(repeatMs === undefined ? {} : { repeatMs }),
      ...(looks ? { looks } : {}),
    };
    while (!signal.aborted) {
      let isAsked = false;
      // The same question again changes nothing; a failover may have lost the first one.
      for (const waitMs of askAgainMs) {
        try {
          const known = isAsked ? await handoff.answerTo(job.session, ask) : undefined;
          if (known !== undefined) return known;
          if (isAsked) await handoff.notify(job.session);
          else await handoff.add({ ...this.#about(job), kind: "begun", ...asked }, job.worker);
          isAsked = true;
        } catch (error) {
          onError(error);
        }
        const answer = await within(this.#clock, answered, waitMs);
        if (answer !== undefined) return answer;
        if (signal.aborted) return undefined;
      }
    }
    return undefined;
  }

  async #add(job: ToolJob, entry: HandoffEntry): Promise<void> {
    const { handoff, onError, backoffMs = defaultBackoffMs } = this.#options;
    const isFirst = !this.#handedIn.has(job);
    for (const waitMs of this.#waits(backoffMs, job.deadlineMs)) {
      try {
        await handoff.add(entry, job.worker, isFirst);
        return;
      } catch (error) {
        onError(error);
        await pause(this.#clock, waitMs);
      }
    }
    await handoff.add(entry, job.worker, isFirst);
  }

  /** The waits between tries, for as long as another try makes sense. */
  *#waits(backoffMs: readonly number[], deadlineMs: number): Generator<number> {
    yield* backoffMs;
    const last = backoffMs.at(-1) ?? 0;
    while (this.#clock.now() + last < deadlineMs) yield last;
  }

  #about({ session, turnId, callId, attempt, name: tool, arguments: text }: ToolJob) {
    const { runner } = this.#options;
    return {
      v: 1,
      runner,
      session,
      turnId,
      callId,
      attempt,
      tool,
      argumentsHash: argumentsHashOf(text),
    } as const;
  }
}

/** What a tool says of calls that began before. */
interface Repeating {
  repeatMs?: number | undefined;
  looks?: boolean;
}

/** The call began before: it may look for what that run has made. */
export interface LookOnly {
  beganAtMs: number;
  identity?: ToolIdentity;
}

function lookOf({ beganAtMs = 0 }: HandoffAnswer): LookOnly {
  return { beganAtMs };
}

/** Whether a call may start. */
interface Question {
  effect: ToolEffect;
  ask: string;
  /** As whom it acts is asked as well. */
  identity?: true;
  tool: Repeating;
  answered: Promise<HandoffAnswer | undefined>;
  signal: AbortSignal;
}

/** What `promise` resolves with within a time, otherwise undefined. */
async function within<T>(clock: Clock, promise: Promise<T>, ms: number): Promise<T | undefined> {
  const timer = new AbortController();
  try {
    return await Promise.race([promise, pause(clock, ms, timer.signal).then(() => undefined)]);
  } finally {
    timer.abort();
  }
}

/** Publishes what a call reports while it runs. */
export interface CallReport {
  /** `fraction` is brought into 0 to 1. Of reports that come faster than the interval the newest is published. */
  progress: (fraction: number, detail?: string) => void;
  /** Lines that come faster than the interval are published together; of very many only the first. */
  log: (line: string) => void;
  /** Publishes the lines that wait and nothing more; waits for what is on its way. */
  close(): Promise<void>;
}

interface CallReportOptions {
  /** Hands it in; rejects when that fails. */
  publish(reported: CallReported): Promise<void>;
  onError: (error: unknown) => void;
  /** Least time between two published reports of a kind, ms. */
  intervalMs?: number;
  clock?: Clock;
}

const maxDetailCharacters = 500;

const maxEventCharacters = 8_000;

const maxCallCharacters = 64_000;

export function createCallReport({
  publish: handIn,
  onError,
  intervalMs = 250,
  clock = systemClock,
}: CallReportOptions): CallReport {
  let newest: CallReported | undefined;
  let closed = false;
  const publish = async (reported: CallReported): Promise<void> => {
    await handIn(reported).catch(onError);
  };
  const lines = createLines();
  const logs = createPace({ next: lines.next, publish, intervalMs, clock });
  const takeNewest = (): CallReported | undefined => {
    const reported = newest;
    newest = undefined;
    return reported;
  };
  const progress = createPace({ next: takeNewest, publish, intervalMs, clock });

  return {
    progress: (fraction, detail = "") => {
      if (closed) return;
      newest = {
        kind: "progress",
        fraction: withinOne(fraction),
        detail: detail.slice(0, maxDetailCharacters).toWellFormed(),
      };
      progress.wake();
    },
    log: (line) => {
      if (closed) return;
      lines.add(line);
      logs.wake();
    },
    close: async () => {
      closed = true;
      await Promise.all([progress.stop(), logs.stop()]);
      for (let rest = lines.next(); rest !== undefined; rest = lines.next()) await publish(rest);
    },
  };
}

/** Keeps the lines of a call until they are published, in order. */
function createLines() {
  let waiting = "";
  let left = maxCallCharacters;
  return {
    add: (line: string) => {
      if (left <= 0) return;
      left -= line.length + 1;
      waiting += left > 0 ? `${line}\n` : `${line.slice(0, left)}[further lines are left out]\n`;
    },
    next: (): CallReported | undefined => {
      if (waiting === "") return undefined;
      const text = waiting.slice(0, maxEventCharacters).toWellFormed();
      waiting = waiting.slice(maxEventCharacters);
      return { kind: "log", text };
    },
  };
}

/** Publishes what `next` gives: at once, and then when the one before is published and an interval has passed. */
function createPace(options: {
  next: () => CallReported | undefined;
  publish: (reported: CallReported) => Promise<void>;
  intervalMs: number;
  clock: Clock;
}) {
  const { next, publish, intervalMs, clock } = options;
  let publishing: Promise<void> | undefined;
  let cancel: (() => void) | undefined;
  let stopped = false;
  const fire = (): void => {
    cancel = undefined;
    const reported = next();
    if (reported === undefined) return;
    publishing = paced(reported);
  };
  const paced = async (reported: CallReported): Promise<void> => {
    await publish(reported);
    publishing = undefined;
    if (!stopped) cancel = clock.after(intervalMs, fire);
  };
  return {
    wake: () => {
      if (cancel === undefined && publishing === undefined && !stopped) fire();
    },
    /** Waits for what is on its way. */
    stop: async () => {
      stopped = true;
      cancel?.();
      await publishing;
    },
  };
}

function withinOne(fraction: number): number {
  return Number.isNaN(fraction) ? 0 : Math.min(1, Math.max(0, fraction));
}
