import { createHash } from "node:crypto";
import { FeishuError } from "@larkline/feishu";
import type { AgentConfig } from "@larkline/process/config";
import {
  objectFeatures,
  programSender,
  turnIdOf,
  type InboundMessage,
  type ReplyLanguage,
} from "@larkline/protocol";
import { deadline, withDeadline } from "@larkline/protocol/clock";
import type { OutboxTarget } from "@larkline/store";
import type { Bot } from "../bot.ts";
import type { Services } from "../services.ts";
import { answeredBy, wakeSession } from "../sessions.ts";

// What the doors have in common.

/** Events of one person that a door takes, a minute. More are passed over in silence. */
export const perMinute = 20;

/** Short, and the same for the same facts. */
export function idOf(facts: readonly string[]): string {
  return createHash("sha256").update(JSON.stringify(facts)).digest("hex").slice(0, 32);
}

/**
 * Whether a person may start one more thing through a door. What has been let in once is let in again when its event comes
 * again, and does not count twice.
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

/** The platform wants its acknowledgement within 3 s; it delivers the event again where its object cannot be read in time. */
const fetchMs = 1_500;

/** What an event is about; undefined where the platform refuses it for good, such as what the bot may not see. */
export async function readFor<T>(
  { clock }: Services,
  { log }: Bot,
  read: (signal: AbortSignal) => Promise<T>,
): Promise<T | undefined> {
  try {
    return await read(deadline(clock, fetchMs));
  } catch (error) {
    if (!(error instanceof FeishuError) || error.retryable || error.kind === "cancelled") {
      throw error;
    }
    const { api, kind, code } = error;
    log.warn({ api, kind, code }, "what an event is about cannot be read");
    return undefined;
  }
}

/** Words of others as data: the fence is longer than any in the text, so the text cannot end it. */
export function fenced(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${text}\n${fence}`;
}

/** Something that no person has said. */
interface ProgramMessage {
  session: string;
  id: string;
  /** What says it, such as `trigger:build`. */
  program: string;
  agent: AgentConfig;
  language: ReplyLanguage;
  text: string;
  target: OutboxTarget;
  /** Turns of the session that may wait. */
  maxWaiting: number;
}

/**
 * Stores such a message: calls of its turn act as the bot, and what it says counts as the words of others. Resolves to the
 * id of its run; undefined where too many wait.
 */
export async function appendProgram(
  services: Services,
  bot: Bot,
  { session, id, program, agent, language, text, target, maxWaiting }: ProgramMessage,
): Promise<string | undefined> {
  const { store, clock } = services;
  const answered = answeredBy(agent);
  const { object } = target;
  const features = object === undefined ? [] : [objectFeatures[object.kind]];
  const needs = [...(answered.needs ?? []), ...features];
  const message: InboundMessage = {
    v: 1,
    session,
    id,
    app: bot.app,
    sender: programSender(program),
    chatType: "group",
    parts: [{ type: "text", text }],
    foreign: true,
    addresses: [],
    createdAtMs: clock.now(),
    language,
    reply: { channel: "feishu", ...target },
    ...answered,
    ...(needs.length === 0 ? {} : { needs }),
  };
  const appending = store.append(message, { maxWaiting });
  const { result, seq, wakeGen } = await withDeadline(clock, appending, bot.storeDeadlineMs);
  // Also for a duplicate: the process of the first delivery may have died between append and wake.
  await wakeSession(services, bot, session, wakeGen);
  return result === "accepted" || result === "duplicate" ? turnIdOf(session, seq) : undefined;
}
