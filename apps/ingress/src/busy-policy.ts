import { noticeText } from "@larkline/agent";
import type { BusyPolicy, FeishuSettings } from "@larkline/process/config";
import type { StatusReactions, ReactionPurpose } from "@larkline/feishu";
import { turnIdOf, type InboundMessage, type ReplyLanguage } from "@larkline/protocol";
import type { AppendResult, OutboxTarget, SessionStore } from "@larkline/store";
import type { Background } from "./background.ts";
import type { Inbox } from "./inbox.ts";
import { joiningText } from "./notice.ts";
import type { Speaker } from "./speaker.ts";
import { mayStop } from "./turn-stopper.ts";

/** A message on its way into its session. */
export interface Queuing {
  message: InboundMessage;
  target: OutboxTarget;
  language: ReplyLanguage;
}

/** What became of it. `busy`: refused because the session is at work. */
export type QueuedAs = "accepted" | "duplicate" | "full" | "busy";

/** Stores a message as the policy says; `busy` when the session is at work and takes nothing meanwhile. */
export async function appendAs(
  policy: BusyPolicy,
  inbox: Pick<Inbox, "append">,
  message: InboundMessage,
): Promise<AppendResult | "busy"> {
  // Orders such as `/new` are how a person gets out of what keeps the session busy.
  const refuses = policy === "reject" && message.command === undefined;
  const appended = await inbox.append(message, refuses ? { maxWaiting: 1 } : undefined);
  return refuses && appended.result === "full" ? "busy" : appended;
}

/**
 * Stops the turn that the policy `interrupt` has this message replace: one of the same person, never
 * that of another. True when there was one.
 */
export async function supersede(
  { store, inbox }: { store: Pick<SessionStore, "summary">; inbox: Pick<Inbox, "cancel"> },
  { session, sender }: InboundMessage,
  appended: AppendResult,
): Promise<boolean> {
  // The first delivery may have died before its cancel.
  const head = appended.result === "duplicate" ? (await store.summary(session)).head : appended.head;
  if (head === undefined || head.seq >= appended.seq || !mayStop(head.message, sender.id)) return false;
  await inbox.cancel(session, turnIdOf(session, head.seq), "superseded");
  return true;
}

/** Puts messages into their sessions as the agent's busy policy says. */
export type MessageQueue = (queuing: Queuing) => Promise<QueuedAs>;

export interface MessageQueueDeps {
  policyFor: (message: InboundMessage) => BusyPolicy;
  settings: Pick<FeishuSettings, "typing" | "queueNotice">;
  store: Pick<SessionStore, "summary" | "waiting">;
  inbox: Inbox;
  speak: Speaker;
  reactions: StatusReactions;
  background: Background;
}

/** Where a message waits: its number, how many come before it, and whether it will join the running turn. */
interface Spot {
  seq: number;
  ahead: number;
  joins: boolean;
}

export function createMessageQueue(deps: MessageQueueDeps): MessageQueue {
  const { policyFor, settings, store, inbox, speak, reactions, background } = deps;

  /** The turn may have begun, or ended, before the platform took the reaction. */
  const react = async ({ session, id }: InboundMessage, { seq, ahead }: Spot, purpose: ReactionPurpose) => {
    await reactions.add(id, purpose);
    const { head } = await store.summary(session);
    const waiting = await store.waiting(session, ahead + 1);
    const waits = waiting.some((one) => one.seq === seq);
    const isAnswered = head?.seq !== seq && !waits;
    if (purpose === "queued" ? !waits : isAnswered) await reactions.remove(id, purpose);
  };

  const tellPosition = async ({ message, target, language }: Queuing, spot: Spot): Promise<void> => {
    const { queueNotice } = settings;
    if (queueNotice === "off") return;
    if (queueNotice === "reaction") return await react(message, spot, "queued");
    const { session, id } = message;
    // A message that joins the running turn does not wait for a turn of its own: no number says when.
    const text = spot.joins ? joiningText(language) : noticeText("queued", language, { ahead: spot.ahead });
    await speak({ purpose: "queued", key: id, session, target, text });
  };

  const showSigns = (queuing: Queuing, spot: Spot): void => {
    // A press on the bot's menu left no message to put a reaction on.
    if (queuing.target.messageId === "") return;
    if (spot.ahead > 0) background.run("position in the queue", async () => await tellPosition(queuing, spot));
    if (settings.typing) background.run("typing reaction", async () => await react(queuing.message, spot, "typing"));
  };

  return async (queuing) => {
    const { message } = queuing;
    const policy = policyFor(message);
    const appended = await appendAs(policy, inbox, message);
    if (appended === "busy") return "busy";
    const { result, seq, ahead } = appended;
    if (result === "full") return "full";
    const superseded = policy === "interrupt" && seq > 0 && (await supersede({ store, inbox }, message, appended));
    // Also for a duplicate: its first delivery may have died between append and wake.
    await inbox.wake(message.session, appended.wakeGen);
    if (result !== "accepted") return result;
    const isOwn = appended.head?.message.sender.id === message.sender.id;
    const joins = policy === "steer" && isOwn && message.references === undefined;
    // What one person has said gives way to what they say now; others' messages stay before it.
    const left = message.chatType === "p2p" ? 0 : ahead - 1;
    showSigns(queuing, { seq, ahead: superseded ? left : ahead, joins });
    return result;
  };
}
