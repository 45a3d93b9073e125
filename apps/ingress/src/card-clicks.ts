import { noticeText } from "@larkline/agent";
import { lateDecidedCard } from "@larkline/feishu/cards";
import type { Envelope } from "@larkline/feishu";
import { parserOf, SessionKey, textOf, type InboundMessage, type ReplyLanguage, sharedNow } from "@larkline/protocol";
import type { SessionStore } from "@larkline/store";
import type { Logger, Observation } from "@larkline/process/telemetry";
import { Type, type Static } from "typebox";
import {
  approvalClicks,
  approvalKey,
  noPendingApproval,
  outcomeClicks,
  type ApprovalClicksDeps,
} from "./approval-clicks.ts";
import { servesTenant } from "./admission.ts";
import type { BotAgents } from "./bot-agents.ts";
import { clickOf, foreignPerson, toastIn, unknownPerson, withCard, type ClickHandler } from "./click.ts";
import { notAllowedText } from "./command-desk.ts";
import type { EventAnswer, EventHandler } from "./event-router.ts";
import type { Inbox } from "./inbox.ts";
import { tellAppended } from "./message-watch.ts";
import { refusalText } from "./notice.ts";
import type { TurnStopper } from "./turn-stopper.ts";

/** Event type of a click on a card. */
export const cardActionType = "card.action.trigger";

// The values of our own buttons: the callback names neither session nor message ("Card callback").
const StopValue = Type.Object({ session: SessionKey, turn: Type.String({ maxLength: 300 }) });
const LateValue = Type.Object({
  action: Type.Enum(["run", "ignore"]),
  session: SessionKey,
  message: Type.String({ minLength: 1, maxLength: 200 }),
});
type LateValue = Static<typeof LateValue>;

const parseStop = parserOf(StopValue);
const parseLate = parserOf(LateValue);

export interface CardClicksDeps {
  app: string;
  agents: BotAgents;
  /** Keys of the tenants whose people may click; `null`: everybody. */
  tenants: readonly string[] | null;
  store: Pick<SessionStore, "parked" | "release">;
  inbox: Pick<Inbox, "wake">;
  stop: TurnStopper;
  approvals: ApprovalClicksDeps;
  observation: Observation;
  logger: Logger;
}

const texts = {
  run: { zh: "好的，现在处理。", en: "All right, I am on it." },
  ignored: { zh: "好的，不处理。", en: "All right, I leave it." },
  decided: { zh: "这条消息已经处理过了。", en: "This message has been dealt with already." },
  notYours: { zh: "只有发送这条消息的人可以决定。", en: "Only the person who wrote this message can decide." },
} as const satisfies Record<string, Record<ReplyLanguage, string>>;

function wordsOf({ parts }: InboundMessage): string {
  return textOf({ role: "user", content: parts });
}

/** A text in both languages: each person sees that of their client. */
function inBoth(textIn: (language: ReplyLanguage) => string): Readonly<Record<ReplyLanguage, string>> {
  return { zh: textIn("zh"), en: textIn("en") };
}

function stopClicks({ app, stop }: CardClicksDeps): ClickHandler {
  return async ({ value, by }) => {
    const parsed = parseStop(value);
    if (!parsed.ok || !isOfApp(app, parsed.value.session)) return undefined;
    const { session, turn } = parsed.value;
    const stopped = await stop({ session, by, turnId: turn, reason: "stopped" });
    switch (stopped.result) {
      case "stopping":
        return toastIn(
          "success",
          inBoth((language) => noticeText("stopping", language)),
        );
      case "nothing":
        return toastIn(
          "info",
          inBoth((language) => noticeText("nothingToStop", language)),
        );
      case "not_allowed":
        return toastIn(
          "warning",
          inBoth((language) => notAllowedText(stopped.message, language)),
        );
    }
  };
}

function lateClicks({ app, agents, store, inbox, observation, logger }: CardClicksDeps): ClickHandler {
  const decided = (value: LateValue, parked: InboundMessage): Record<string, unknown> => {
    const agent = agents.of(parked);
    const language = agent.language === "auto" ? (parked.language ?? agent.defaultLanguage) : agent.language;
    const { session, message, action } = value;
    const bilingual = agent.language === "auto" && parked.chatType === "group";
    const late = { language, bilingual, session, message, ageMs: sharedNow() - parked.createdAtMs };
    return lateDecidedCard({ ...late, text: wordsOf(parked) }, action);
  };

  const release = async (value: LateValue, parked: InboundMessage): Promise<EventAnswer> => {
    const { session, message, action } = value;
    const released = await store.release(session, message, action === "run" ? "append" : "drop");
    // Somebody else's click, on another card or here a moment ago, was first.
    if (released === undefined) return toastIn("info", texts.decided);
    if (released.result === "full") {
      return toastIn(
        "warning",
        inBoth((language) => refusalText("full", language)),
      );
    }
    if (action === "ignore") return withCard(toastIn("info", texts.ignored), decided(value, parked));
    tellAppended(observation, parked, released);
    try {
      await inbox.wake(session, released.wakeGen);
    } catch (error) {
      // The platform does not repeat clicks; the message is stored, and the workers' sweeper finds it.
      logger.warn({ error, session }, "session could not be woken at once");
    }
    return withCard(toastIn("success", texts.run), decided(value, parked));
  };

  return async ({ value, by }) => {
    const parsed = parseLate(value);
    if (!parsed.ok || !isOfApp(app, parsed.value.session)) return undefined;
    const parked = await store.parked(parsed.value.session, parsed.value.message);
    if (parked === undefined) return toastIn("info", texts.decided);
    if (parked.sender.id !== by) return toastIn("warning", texts.notYours);
    return await release(parsed.value, parked);
  };
}

/** A card of this app names sessions of this app only. */
function isOfApp(app: string, session: SessionKey): boolean {
  return session.startsWith(`${app}.`);
}

/**
 * Answers clicks on our own cards within the time that the platform gives. `others` get the clicks on
 * buttons that are not ours, in order, until one answers; what nobody knows is no pending approval.
 */
export function createCardClicks(deps: CardClicksDeps, others: readonly EventHandler[] = []): EventHandler {
  const handlers: ReadonlyMap<unknown, ClickHandler> = new Map([
    ["stop", stopClicks(deps)],
    ["late", lateClicks(deps)],
    ["outcome", outcomeClicks(deps.approvals)],
  ]);
  const decide = approvalClicks(deps.approvals);

  const own = async ({ event, eventId }: Envelope): Promise<EventAnswer | undefined> => {
    const click = clickOf(event);
    if (!servesTenant(deps.tenants, click.tenant)) return foreignPerson();
    if (Object.hasOwn(click.value, approvalKey)) return await decide(click);
    const handler = handlers.get(click.value["larkline"]);
    if (handler === undefined) return undefined;
    if (click.by === undefined) return unknownPerson();
    const answer = await handler({ ...click, by: click.by });
    if (answer === undefined) deps.logger.warn({ eventId }, "a click with a value that none of our buttons carries");
    return answer;
  };

  return async (envelope) => {
    for (const handler of [own, ...others]) {
      const answer = await handler(envelope);
      if (answer !== undefined) return answer;
    }
    return noPendingApproval();
  };
}
