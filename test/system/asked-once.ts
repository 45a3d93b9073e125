import { expect, vi } from "vitest";
import { metricOf } from "./answers.ts";
import type { System } from "./system.ts";

/**
 * The model was asked for the step once: again only where a worker has lost its turn, as one does that its machine stops
 * for a second. `lostBefore`: what {@link lostTurns} gave before the step.
 */
export async function expectAskedOnce(system: System, asked: () => number, lostBefore = 0): Promise<void> {
  expect(asked()).toBeGreaterThan(0);
  const more = async (): Promise<number> => asked() - 1 - (await lostTurns(system)) + lostBefore;
  await vi.waitFor(async () => expect(await more()).toBeLessThanOrEqual(0), { timeout: 20_000, interval: 50 });
}

/** How often a worker has found its turn taken by a successor. */
export async function lostTurns({ workers }: System): Promise<number> {
  const each = workers.map(async (worker) => await metricOf(worker, "larkline_turn_runs_total", 'outcome="fenced"'));
  return (await Promise.all(each)).reduce((sum, count) => sum + count, 0);
}
