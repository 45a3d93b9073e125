import { systemClock, type Clock } from "@larkline/protocol/clock";

/** Steps of one wait. */
const steps = 20;
const shortestStepMs = 10;

/**
 * The clock of the machine, whose waits count only the time in which this process runs. On a busy machine a process
 * stands still for seconds: with this clock a deadline does not pass meanwhile for work of the same process.
 */
export const patientClock: Clock = {
  ...systemClock,
  after: (ms, work) => {
    const stepMs = Math.max(shortestStepMs, ms / steps);
    let leftMs = ms;
    let cancel: (() => void) | undefined;
    const step = (): void => {
      const nextMs = Math.min(leftMs, stepMs);
      leftMs -= nextMs;
      cancel = systemClock.after(nextMs, leftMs > 0 ? step : work);
    };
    step();
    return () => cancel?.();
  },
};
