/** Epoch ms of the shared clock minus `performance.now()`; undefined until Redis has told the time. */
let anchor: number | undefined;

/**
 * Epoch ms by the clock that all processes of a deployment share, that of Redis: for every time that another process
 * compares with its own. A machine whose own clock is wrong, or is set while it runs, does not disagree with the rest.
 * Until {@link followClock} has been called it is the machine's clock.
 */
export function sharedNow(): number {
  return anchor === undefined ? Date.now() : Math.round(performance.now() + anchor);
}

/** Sets the shared clock: it shows `epochMs` at the moment when `performance.now()` is `atMs`. */
export function followClock(epochMs: number, atMs: number): void {
  anchor = epochMs - atMs;
}

/** Goes back to the machine's clock, as before the first {@link followClock}. */
export function forgetClock(): void {
  anchor = undefined;
}
