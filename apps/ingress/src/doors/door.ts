import { createHash } from "node:crypto";
import type { Services } from "../services.ts";
import type { Bot } from "../bot.ts";

// What the doors for events have in common.

/** The platform wants its acknowledgement within 3 s; it delivers the event again where its object cannot be read in time. */
export const fetchMs = 1_500;

/** Events of one person that a door takes, a minute. More are passed over in silence. */
export const perMinute = 20;

/** Short, and the same for the same facts. */
export function idOf(facts: readonly string[]): string {
  return createHash("sha256").update(JSON.stringify(facts)).digest("hex").slice(0, 32);
}

/**
 * Whether a person may start one more thing through a door. It is asked before anything is read, so a storm of events costs
 * the platform nothing; what has been let in once is let in again when its event comes again, and does not count twice.
 */
export async function letIn(
  { governor, lookups, settings }: Services,
  { app }: Bot,
  { door, person, id }: { door: string; person: string; id: string },
): Promise<boolean> {
  const key = `door:${app}:${door}:${id}`;
  if ((await lookups.get(key)) !== undefined) return true;
  if ((await governor.takeRequest(app, `${door} of ${person}`, perMinute)) > 0) return false;
  await lookups.set(key, "", settings.limits.messageAgeMs);
  return true;
}

/** Words of others as data: the fence is longer than any in the text, so the text cannot end it. */
export function fenced(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${text}\n${fence}`;
}
