import { encodeFrame } from "./frame.ts";
import type { PoolChild } from "./pool-child.ts";
import { ProcessCallError, type ProcessCallOptions } from "./process-call.ts";
import type { FrameToPool } from "./process-frame.ts";

/** A call that a child has. */
export interface RunningCall {
  /** What the caller is told. */
  readonly result: Promise<unknown>;
  /** Resolves when the child has answered, or has ended: it does nothing for this call any more. */
  readonly answered: Promise<void>;
  /** A frame of the child. */
  take(frame: FrameToPool): void;
  /** It is over without an answer of the child. */
  fail(error: ProcessCallError): void;
}

interface RunningCallOptions extends ProcessCallOptions {
  id: number;
  /** Time for the child to answer after a cancellation, ms; then it is killed. */
  graceMs: number;
}

/** Follows a call that was just written. Listens to the signal; exactly one of answer, failure and abort counts. */
export function runningCall(child: PoolChild, options: RunningCallOptions): RunningCall {
  const { id, signal, timeoutMs } = options;
  const result = Promise.withResolvers<unknown>();
  const answered = Promise.withResolvers<void>();
  let grace: NodeJS.Timeout | undefined;

  const cancel = (error: ProcessCallError): void => {
    if (grace !== undefined) return;
    grace = setTimeout(() => child.kill(), options.graceMs);
    child.write(encodeFrame({ kind: "cancel", id }));
    result.reject(error);
  };
  const onAbort = (): void =>
    cancel(new ProcessCallError("cancelled", "The call was cancelled.", { childFault: false }));
  const timer = setTimeout(() => {
    cancel(new ProcessCallError("timeout", `The call took longer than ${timeoutMs} ms.`, { childFault: true }));
  }, timeoutMs);
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();

  const settle = (): void => {
    clearTimeout(timer);
    clearTimeout(grace);
    signal.removeEventListener("abort", onAbort);
    answered.resolve();
  };
  const answer = async ({ request, body }: FrameToPool & { kind: "request" }): Promise<void> => {
    const reply = await replyTo(async () => await options.onRequest(body));
    child.write(encodeFrame({ kind: "reply", id, request, ...reply }));
  };
  const take = (frame: FrameToPool): void => {
    if (frame.kind === "ready" || frame.id !== id) return;
    if (frame.kind === "result" || frame.kind === "error") {
      settle();
      if (frame.kind === "result") result.resolve(frame.body);
      else result.reject(new ProcessCallError("handler", frame.message, { childFault: true }));
    } else if (grace === undefined) {
      if (frame.kind === "event") options.onEvent(frame.body);
      else void answer(frame);
    }
  };
  const fail = (error: ProcessCallError): void => {
    settle();
    result.reject(error);
  };
  return { result: result.promise, answered: answered.promise, take, fail };
}

async function replyTo(work: () => Promise<unknown>): Promise<{ ok: boolean; body: unknown }> {
  try {
    const body = (await work()) ?? null;
    encodeFrame(body); // a reply that is no JSON is the fault of who gave it
    return { ok: true, body };
  } catch (error) {
    return { ok: false, body: error instanceof Error ? error.message : String(error) };
  }
}
