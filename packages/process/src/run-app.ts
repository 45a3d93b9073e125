import type { ParseResult } from "@larkline/protocol";
import type { Clock, Random } from "@larkline/protocol/clock";
import type { DestinationStream } from "pino";
import { takeEnvironment, type Env } from "./config/environment.ts";
import type { Logger } from "./telemetry/logger.ts";
import { runUntilSignal } from "./telemetry/run-until-signal.ts";
import { watchEventLoop, type StallNotePlace } from "./watchdog/watchdog.ts";

/** What an app gets besides its environment. By default everything is that of the process. */
export interface AppOptions {
  clock?: Clock | undefined;
  random?: Random | undefined;
  /** Where its log goes; default is standard output. */
  destination?: DestinationStream | undefined;
  /** Called when the app cannot go on: it is to be closed, or its process ended. Default: it throws. */
  onFatal?: ((problem: string) => void) | undefined;
}

/** An app that works: in a process of its own, or beside others in one. */
export interface RunningApp {
  /** The port in use. */
  readonly port: number;
  readonly log: Logger;
  /** What `/ready` reports. */
  ready(): Promise<Readonly<Record<string, boolean | string>>>;
  /** Finishes or hands over running work and closes every connection. Idempotent. */
  close(): Promise<void>;
  /** How long `close` may take, ms. */
  readonly closeMs: number;
  /** Where the next process learns why this one ended. */
  readonly note?: StallNotePlace;
  /** What it works on now, for the log of a process whose event loop stands still. */
  atWork?(): readonly string[];
}

/** Starts an app; rejects with a {@link StartError} where what it is given cannot be used. Changes nothing of the process. */
export type StartApp<App extends RunningApp = RunningApp> = (
  env: Env,
  options?: AppOptions,
) => Promise<App>;

/** Why an app does not start: one line for each problem. */
export class StartError extends Error {
  override readonly name = "StartError";
}

/** The value; throws a {@link StartError} where there is none. */
export function accept<T>(result: ParseResult<T>): T {
  if (!result.ok) throw new StartError(result.error);
  return result.value;
}

/** For `catch`: says what could not be done. */
export function startError(what: string): (error: unknown) => never {
  return (error) => {
    if (error instanceof StartError) throw error; // it says what is wrong itself
    throw new StartError(`${what}: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    });
  };
}

/**
 * Opens the parts of an app. What `open` defers is done in reverse order when the app closes, or at once when `open`
 * throws.
 */
export async function openApp<App>(
  open: (opened: AsyncDisposableStack) => Promise<App>,
): Promise<App & { close(): Promise<void> }> {
  const opened = new AsyncDisposableStack();
  let closed: Promise<void> | undefined;
  const close = async (): Promise<void> => await (closed ??= opened.disposeAsync());
  try {
    return { ...(await open(opened)), close };
  } catch (error) {
    await close();
    throw error;
  }
}

export interface RunAppOptions {
  /** See `runUntilSignal`. */
  givesWay?: boolean;
  /** Default: that of the process. */
  env?: Env | undefined;
  /** Its name in the log, where a watchdog ends it when its event loop stands still. */
  watched?: string;
}

/**
 * Runs an app as this process, until a signal. To be called once, before anything else runs: it takes the environment
 * of the process. Problems are printed, and end the process with 1. Resolves when the app works.
 */
export async function runApp<App extends RunningApp>(
  start: StartApp<App>,
  { givesWay = false, env: given, watched: service }: RunAppOptions = {},
): Promise<App> {
  const { env, problem } = given === undefined ? takeEnvironment() : { env: given };
  const app = await start(env, { onFatal: leave }).catch((error: unknown) => {
    if (error instanceof StartError) return leave(error.message);
    throw error;
  });
  if (problem !== undefined) {
    app.log.warn({ reason: problem }, "other processes of this user can read the environment");
  }
  if (service !== undefined) watchEventLoop({ service, note: app.note, atWork: app.atWork });
  runUntilSignal({ logger: app.log, givesWay, deadlineMs: app.closeMs, close: app.close });
  return app;
}

function leave(problem: string): never {
  process.stderr.write(`${problem}\n`);
  process.exit(1);
}
