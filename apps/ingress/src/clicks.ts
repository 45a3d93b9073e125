import { noticeText } from "@larkline/agent";
import { decidersText } from "@larkline/agent/permissions";
import { schedulesDone } from "@larkline/agent/schedules";
import { addReasonField, type Envelope, type FeishuMessage } from "@larkline/feishu";
import {
  approvalCard,
  endedGrantCard,
  lateDecidedCard,
  withReasonForm,
} from "@larkline/feishu/cards";
import { agentOfMessage } from "@larkline/process/config";
import {
  parserOf,
  replyLanguages,
  SessionKey,
  type InboundMessage,
  type ReplyLanguage,
} from "@larkline/protocol";
import { ApprovalId, type DecisionWord } from "@larkline/protocol/approval";
import { withDeadline } from "@larkline/protocol/clock";
import { textOf } from "@larkline/protocol/content";
import { type RatedRun, ReplyAgain } from "@larkline/protocol/reply-view";
import { Type, type Static } from "@larkline/protocol/type";
import type { ApprovalStatus } from "@larkline/store";
import { maxReasonChars, type Said } from "@larkline/store/operations";
import {
  decideApproval,
  previewDecision,
  type GivenDecision,
  type DecisionResult,
} from "./approvals.ts";
import type { Bot } from "./bot.ts";
import { mayNotStopText } from "./commands.ts";
import { endGrant } from "./grants.ts";
import {
  languageOfPerson,
  refusalText,
  servesTenant,
  shownLanguage,
  takeMessage,
  watched,
} from "./messages.ts";
import { otherEventOf, type EventAnswer } from "./other-events.ts";
import { noteZone, scheduleClicked } from "./schedules.ts";
import type { Services } from "./services.ts";
import { stopTurn, tellAppended, wakeSession } from "./sessions.ts";

// Clicks on buttons of cards, which have to be answered within three seconds and are never repeated by the platform.

type Bilingual = Readonly<Record<ReplyLanguage, string>>;

/**
 * Answers a click. Clicks on buttons that are not ours are offered to the consumers of other events; one that no
 * consumer knows is answered as no pending approval.
 */
export async function handleClick(
  services: Services,
  bot: Bot,
  envelope: Envelope,
): Promise<EventAnswer> {
  const { own, release } = holdingWakes(services, bot);
  try {
    const answer = await answerOwnClick(own, bot, envelope);
    if (answer !== undefined) return answer;
    return (
      (await services.otherEvents.click(otherEventOf(bot.name, envelope))) ?? noPendingApproval()
    );
  } finally {
    release();
  }
}

/**
 * The services of one click, which wake no worker and publish no cancel before `release`. Until the platform has the
 * answer to a click it refuses changes of its card, and a worker that is woken changes the card at once. What is lost
 * in between is stored already: the workers' sweeper finds it.
 */
function holdingWakes(services: Services, bot: Bot): { own: Services; release: () => void } {
  const { clock, turns, cancels } = services;
  const held: (() => Promise<void>)[] = [];
  const hold = async (work: () => Promise<void>): Promise<void> => void held.push(work);
  const run = async (): Promise<void> => {
    for (const work of held) await work();
  };
  return {
    own: {
      ...services,
      turns: {
        wake: async (session, gen) => await hold(async () => await turns.wake(session, gen)),
      },
      cancels: { publish: async (cancel) => await hold(async () => await cancels.publish(cancel)) },
    },
    // Yield so that the answer is sent first.
    release: () =>
      void clock.after(
        0,
        () => void run().catch((error: unknown) => bot.log.warn({ error }, "left to the workers")),
      ),
  };
}

/** Key by which the buttons of approvals are known. */
const approvalKey = "__approval__";

/** Answers a click; undefined when the button is not ours, or has a value that none of our buttons has. */
async function answerOwnClick(
  services: Services,
  bot: Bot,
  envelope: Envelope,
): Promise<EventAnswer | undefined> {
  const { event, eventId } = envelope;
  const { by, ...rest } = clickOf(event, eventId);
  if (!servesTenant(bot.settings.tenants, rest.tenant)) return foreignPerson();
  if (Object.hasOwn(rest.value, approvalKey)) {
    return await approvalClicked(services, bot, { by, ...rest });
  }
  const handler = handlers.get(rest.value["larkline"]);
  if (handler === undefined) return undefined;
  if (by === undefined) return unknownPerson();
  noteZone(services, bot, envelope, by);
  const answer = await handler(services, bot, { by, ...rest });
  if (answer === undefined) {
    bot.log.warn({ eventId }, "a click with a value that none of our buttons carries");
  }
  return answer;
}

/** A card callback. It contains neither our session nor our message id ("Card callback"). */
interface Click {
  /** The value of the component; empty when it has none, or one that is no object. */
  value: Readonly<Record<string, unknown>>;
  /** The values of the form that it submits. */
  form: Readonly<Record<string, unknown>>;
  /** What was written into a field outside of a form. */
  input: unknown;
  /** The message of the card; empty when the platform does not say it. */
  messageId: string;
  eventId: string;
  /** open_id of the person; undefined when the platform does not say it. */
  by: string | undefined;
  /** Tenant of that person; undefined when the platform does not say it. */
  tenant: string | undefined;
}

/** A click of a person whom the platform names. */
type PersonClick = Click & { by: string };

/** Handles clicks on buttons of one kind; undefined when the value is not one of theirs. */
type ClickHandler = (
  services: Services,
  bot: Bot,
  click: PersonClick,
) => Promise<EventAnswer | undefined>;

/** The handlers of buttons, by the text under `larkline` in the value of the button. */
const handlers: ReadonlyMap<unknown, ClickHandler> = new Map([
  ["stop", stopClicked],
  ["late", lateClicked],
  ["outcome", outcomeClicked],
  ["memory", memoryClicked],
  ["again", againClicked],
  ["answer", answerClicked],
  ["rate", rateClicked],
  ["consent", consentClicked],
  ["schedule", scheduleClick],
  ["grant", grantClicked],
]);

const Fields = Type.Record(Type.String(), Type.Unknown());
const parseFields = parserOf(Fields);
const parseOperator = parserOf(
  Type.Object({
    operator: Type.Object({
      open_id: Type.String({ minLength: 1, maxLength: 128 }),
      tenant_key: Type.Optional(Type.Union([Type.String({ maxLength: 128 }), Type.Null()])),
    }),
  }),
);
const parseAction = parserOf(Type.Object({ action: Fields }));
const parseContext = parserOf(
  Type.Object({ context: Type.Object({ open_message_id: Type.String({ maxLength: 128 }) }) }),
);

/** Reads the event of a callback; what is missing or broken counts as absent. */
function clickOf(event: Readonly<Record<string, unknown>>, eventId: string): Click {
  const parsed = parseAction(event);
  const action = parsed.ok ? parsed.value.action : {};
  const operator = parseOperator(event);
  const { open_id: by, tenant_key: tenant } = operator.ok ? operator.value.operator : {};
  const [value, form] = [fieldsOf(action["value"]), fieldsOf(action["form_value"])];
  const context = parseContext(event);
  const messageId = context.ok ? context.value.context.open_message_id : "";
  return {
    value,
    form,
    input: action["input_value"],
    messageId,
    eventId,
    by,
    tenant: tenant || undefined,
  };
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  const parsed = parseFields(value);
  return parsed.ok ? parsed.value : {};
}

// The values of our own buttons: the callback names neither session nor message ("Card callback").
const StopValue = Type.Object({ session: SessionKey, turn: Type.String({ maxLength: 300 }) });
const parseStop = parserOf(StopValue);

/** The stop button of a reply that is being written. */
async function stopClicked(
  services: Services,
  bot: Bot,
  { value, by }: PersonClick,
): Promise<EventAnswer | undefined> {
  const parsed = parseStop(value);
  if (!parsed.ok || !isOfBot(bot, parsed.value.session)) return undefined;
  const { session, turn: turnId } = parsed.value;
  const stopped = await stopTurn(services, bot, { session, by, turnId, reason: "stopped" });
  switch (stopped.result) {
    case "stopping":
      return toast("success", {
        zh: noticeText("stopping", "zh"),
        en: noticeText("stopping", "en"),
      });
    case "nothing":
      return toast("info", {
        zh: noticeText("nothingToStop", "zh"),
        en: noticeText("nothingToStop", "en"),
      });
    case "not_allowed": {
      const { message } = stopped;
      return toast("warning", {
        zh: mayNotStopText(message, "zh"),
        en: mayNotStopText(message, "en"),
      });
    }
  }
}

/** A card of this bot names sessions of this bot only. */
function isOfBot({ app }: Bot, session: SessionKey): boolean {
  return session.startsWith(`${app}.`);
}

const MemoryValue = Type.Object({
  session: SessionKey,
  memory: Type.String({ pattern: "^[0-9a-f]{1,64}$" }),
  about: Type.Enum(["me", "chat"]),
});
const parseMemory = parserOf(MemoryValue);

const memoryTexts = {
  takenBack: { zh: "已撤回，不再记住。", en: "Taken back: it is not remembered." },
  none: {
    zh: "没有属于你的这条内容，可能已经撤回。",
    en: "There is no such note of yours; it may be taken back already.",
  },
} as const satisfies Record<string, Bilingual>;

/** The button that takes a memory back: one of the person who clicks, or of the chat of the card. */
async function memoryClicked(
  { memories }: Services,
  bot: Bot,
  { value, by }: PersonClick,
): Promise<EventAnswer | undefined> {
  const parsed = parseMemory(value);
  if (!parsed.ok || !isOfBot(bot, parsed.value.session)) return undefined;
  const { session, memory, about } = parsed.value;
  const { app } = bot;
  const [chat = ""] = session.slice(app.length + 1).split(".");
  const owner =
    about === "me"
      ? ({ kind: "person", app, id: by } as const)
      : ({ kind: "chat", app, id: chat } as const);
  return (await memories.takeBack(owner, memory))
    ? toast("success", memoryTexts.takenBack)
    : toast("info", memoryTexts.none);
}

const parseAgain = parserOf(ReplyAgain);

const parseConsent = parserOf(Type.Object({ approval: ApprovalId }));

const consentTexts = {
  again: { zh: "稍等，卡片上会出现新的链接。", en: "One moment: a new link appears on the card." },
  notYours: {
    zh: "只有被询问的本人可以授权。",
    en: "Only the person who was asked can grant this.",
  },
} as const satisfies Record<string, Bilingual>;

/** A person wants another link to grant what a call needs. */
async function consentClicked(
  { approvals }: Services,
  bot: Bot,
  { value, by }: PersonClick,
): Promise<EventAnswer | undefined> {
  const parsed = parseConsent(value);
  if (!parsed.ok) return undefined;
  const found = await approvals.find(bot.app, parsed.value.approval);
  if (found?.approval.kind !== "consent") return noPendingApproval();
  const { requester, session, id } = found.approval;
  if (requester.id !== by) return toast("warning", consentTexts.notYours);
  return (await approvals.touchCards(session, id, true))
    ? toast("success", consentTexts.again)
    : noPendingApproval();
}

/** A button of a schedule. */
async function scheduleClick(
  services: Services,
  bot: Bot,
  click: PersonClick,
): Promise<EventAnswer | undefined> {
  const clicked = await scheduleClicked(services, bot, click);
  if (clicked === undefined) return undefined;
  const { done, card } = clicked;
  const isDone = done === click.value["do"];
  const text = { zh: schedulesDone(done, "zh"), en: schedulesDone(done, "en") };
  const answer = toast(isDone ? "success" : "warning", text);
  return card === undefined ? answer : withCard(answer, card);
}

const grantTexts = {
  ended: { zh: noticeText("grantWithdrawn", "zh"), en: noticeText("grantWithdrawn", "en") },
  ending: { zh: noticeText("grantEnding", "zh"), en: noticeText("grantEnding", "en") },
  none: { zh: noticeText("grantNone", "zh"), en: noticeText("grantNone", "en") },
} as const satisfies Record<string, Bilingual>;

/** A person takes back what they let the bot do as them. The button is about the person who clicks. */
async function grantClicked(
  services: Services,
  bot: Bot,
  { value, by }: PersonClick,
): Promise<EventAnswer | undefined> {
  const ended = await endGrant(services, bot, by);
  const answer = toast(ended === "none" ? "info" : "success", grantTexts[ended]);
  const language = replyLanguages.find((each) => each === value["language"]) ?? "en";
  return ended === "ending" ? answer : withCard(answer, endedGrantCard(language));
}

const againTexts = {
  retry: { zh: "请再试一次。", en: "Please try again." },
  continue: { zh: "请继续。", en: "Please continue." },
  taken: { zh: "好的。", en: "All right." },
  before: { zh: "已经在处理了。", en: "That is under way already." },
  notTaken: { zh: "现在不行，请稍后再试。", en: "Not now, please try later." },
  notYours: { zh: "只有提问的人可以这样做。", en: "Only the person who asked can do this." },
} as const satisfies Record<string, Bilingual>;

/**
 * The "retry" or "continue" button below an answer that failed or reached a limit: it counts as a message of its
 * person, once.
 */
async function againClicked(
  services: Services,
  bot: Bot,
  { value, by, tenant }: PersonClick,
): Promise<EventAnswer | undefined> {
  const parsed = parseAgain(value);
  if (!parsed.ok || !isOfBot(bot, parsed.value.session)) return undefined;
  const { wish, session, turnId, person, messageId, chatId, chatType, inThread } = parsed.value;
  if (person !== by) return toast("warning", againTexts.notYours);
  const agent = bot.agentIn(chatId);
  const language = shownLanguage(agent, await languageOfPerson(services, bot, by, agent));
  const message: FeishuMessage = {
    // The same id for each click, so a second click is a duplicate.
    messageId: `again-${turnId.slice(-100)}`,
    chatId,
    chatType,
    senderOpenId: by,
    senderType: "user",
    messageType: "text",
    text: againTexts[wish][language],
    attachments: [],
    forwarded: false,
    mentions: [],
    mentionsBot: true,
    mentionsAll: false,
    createdAtMs: services.clock.now(),
  };
  const place = { session, target: { app: bot.app, chatId, messageId, inThread } };
  const arrival = { message, place, tenant, fromMenu: true, hasToast: true };
  const arriving = {
    app: bot.app,
    id: message.messageId,
    chat: chatId,
    person: by,
    channel: "feishu",
  } as const;
  const accepted = { verdict: "accept" } as const;
  const outcome = await watched(
    services,
    arriving,
    async () => await takeMessage(services, bot, arrival, accepted),
  );
  if (outcome === "duplicate") return toast("info", againTexts.before);
  return outcome === "accepted"
    ? toast("success", againTexts.taken)
    : toast("warning", againTexts.notTaken);
}

const RateValue = Type.Object({
  turn: Type.String({ minLength: 1, maxLength: 300 }),
  /** The rating; absent: the click comes from the field for a reason. */
  rating: Type.Optional(Type.Enum(["up", "down"])),
});
const parseRate = parserOf(RateValue);

const rateTexts = {
  up: { zh: "谢谢你的反馈。", en: "Thank you." },
  down: { zh: "谢谢你的反馈，可以在下方说说原因。", en: "Thank you. You can say why below." },
  reason: { zh: "已记下，谢谢。", en: "Noted, thank you." },
  failed: { zh: "没有记下，请稍后再试。", en: "Not noted, please try later." },
} as const satisfies Record<string, Bilingual>;

/** A thumb below an answer, or the field for the reason: the last rating of each person counts. */
async function rateClicked(
  services: Services,
  bot: Bot,
  click: PersonClick,
): Promise<EventAnswer | undefined> {
  const parsed = parseRate(click.value);
  if (!parsed.ok || !isOfBot(bot, parsed.value.turn)) return undefined;
  const { turn, rating } = parsed.value;
  const reason = textGiven(click.input, maxReasonChars);
  if (rating === undefined && reason === undefined) return toast("info", questionTexts.empty);
  const said = {
    ...(rating === undefined ? {} : { rating }),
    ...(reason === undefined ? {} : { reason }),
  };
  try {
    const known = await services.ratings.runOf(click.messageId);
    // A card that was passed on is another message, and one that came a moment ago may not be known yet.
    const run = known?.turn === turn ? known : { turn, agent: "", model: "", tools: [] };
    await keepRating(services, bot, { run, said, person: click.by, eventId: click.eventId });
  } catch (error) {
    bot.log.warn({ error, turnId: turn }, "a rating was not kept");
    return toast("error", rateTexts.failed);
  }
  // Yield so that the answer is sent first.
  if (rating === "down") {
    const { messageId } = click;
    services.clock.after(0, () =>
      bot.background.run(
        "the field for a reason",
        async (signal) => await showReasonField(services, bot, { messageId, turn, signal }),
      ),
    );
  }
  return toast("success", rateTexts[rating ?? "reason"]);
}

async function showReasonField(
  { clock }: Services,
  bot: Bot,
  field: { messageId: string; turn: string; signal: AbortSignal },
): Promise<void> {
  try {
    await addReasonField({ api: bot.api, clock }, field);
  } catch (error) {
    bot.log.warn({ error, turnId: field.turn }, "the field for a reason could not be shown");
  }
}

/** Stores a person's rating and passes it to the consumers of events. Rejects when it could not be stored. */
export async function keepRating(
  { ratings, settings, otherEvents, clock }: Services,
  bot: Bot,
  { run, said, person, eventId }: { run: RatedRun; said: Said; person: string; eventId: string },
): Promise<void> {
  const { app, name } = bot;
  const isKept = await ratings.rate(
    { ...run, app, person },
    said,
    settings.retention.ratingDays * 86_400_000,
  );
  if (!isKept) return;
  const { rating, reason } = said;
  const event = {
    ...run,
    person,
    ...(rating === undefined ? {} : { rating }),
    ...(reason && { reason }),
  };
  const type = "reply.rated";
  otherEvents.pass({
    bot: name,
    app,
    type,
    eventId,
    tenantKey: "",
    createdAtMs: clock.now(),
    event,
  });
}

const LateValue = Type.Object({
  action: Type.Enum(["run", "ignore"]),
  session: SessionKey,
  message: Type.String({ minLength: 1, maxLength: 200 }),
});
type LateValue = Static<typeof LateValue>;
const parseLate = parserOf(LateValue);

const lateTexts = {
  run: { zh: "好的，现在处理。", en: "All right, I am on it." },
  ignored: { zh: "好的，不处理。", en: "All right, I leave it." },
  decided: { zh: "这条消息已经处理过了。", en: "This message has been dealt with already." },
  notYours: {
    zh: "只有发送这条消息的人可以决定。",
    en: "Only the person who wrote this message can decide.",
  },
} as const satisfies Record<string, Bilingual>;

/** A button under the question whether a message that came late is still wanted. */
async function lateClicked(
  services: Services,
  bot: Bot,
  { value, by }: PersonClick,
): Promise<EventAnswer | undefined> {
  const parsed = parseLate(value);
  if (!parsed.ok || !isOfBot(bot, parsed.value.session)) return undefined;
  const { session, message, action } = parsed.value;
  const parked = await services.store.outbox.parked(session, message);
  if (parked === undefined) return toast("info", lateTexts.decided);
  if (parked.sender.id !== by) return toast("warning", lateTexts.notYours);
  const released = await services.store.outbox.release(
    session,
    message,
    action === "run" ? "append" : "drop",
  );
  // An earlier click on this or another card has decided.
  if (released === undefined) return toast("info", lateTexts.decided);
  if (released.result === "full") {
    return toast("warning", { zh: refusalText("full", "zh"), en: refusalText("full", "en") });
  }
  const card = decidedCard(services, parsed.value, parked);
  if (action === "ignore") return withCard(toast("info", lateTexts.ignored), card);
  tellAppended(services.telemetry, parked, released);
  try {
    await wakeSession(services, bot, session, released.wakeGen);
  } catch (error) {
    // The platform does not repeat clicks; the message is stored, and the workers' sweeper finds it.
    bot.log.warn({ error, session }, "session could not be woken at once");
  }
  return withCard(toast("success", lateTexts.run), card);
}

/** The question with its answer, in place of its buttons. */
function decidedCard(
  { clock, settings }: Services,
  { session, message, action }: LateValue,
  parked: InboundMessage,
): Record<string, unknown> {
  const agent = agentOfMessage(settings, parked);
  const language = shownLanguage(agent, parked.language);
  const bilingual = agent.language === "auto" && parked.chatType === "group";
  const text = textOf({ role: "user", content: parked.parts });
  const ageMs = clock.now() - parked.createdAtMs;
  return lateDecidedCard({ language, bilingual, session, message, ageMs, text }, action);
}

/**
 * The buttons of an approval's card. The answers are the five rows of the contract, in its order: id missing, decision
 * unknown (nothing is consumed), approval not pending, approved, rejected.
 */
async function approvalClicked(
  services: Services,
  bot: Bot,
  { by, ...click }: Click,
): Promise<EventAnswer> {
  const { [approvalKey]: id, decision, remember, ask, in_reply: onReply } = click.value;
  if (!id) return noPendingApproval();
  const inReply = onReply === true;
  if (ask === "reason") {
    return by === undefined
      ? unknownPerson()
      : await reasonAsked(services, bot, { id, by, inReply });
  }
  if (decision !== "approve" && decision !== "reject") {
    return toast("info", { en: "invalid decision", zh: "无效的决定" });
  }
  if (by === undefined) return unknownPerson();
  const approvalId = typeof id === "string" ? id : "";
  const note = wordsIn(click.form, "reason");
  const say = sayOf({ by, approvalId, decision, note, remember: remember === true });
  const answer = await answerOf(services, bot, say);
  if (!inReply) return answer;
  // The worker of the turn draws that card: one that came with this answer could take the place of a later one.
  const { card: _card, ...toastOnly } = answer;
  return toastOnly;
}

/** A person has clicked on "reject": the card gets the form for the reason, if they may decide. */
async function reasonAsked(
  services: Services,
  bot: Bot,
  { id, by, inReply }: { id: unknown; by: string; inReply: boolean },
): Promise<EventAnswer> {
  const approvalId = typeof id === "string" ? id : "";
  const said = await previewDecision(
    services,
    bot,
    sayOf({ by, approvalId, decision: "reject", note: undefined, remember: false }),
  );
  if (inReply) return await reasonAskedInReply(services, bot, said);
  if (said.result !== "counted") return await answerTo(bot, "reject", said);
  return { card: { type: "raw", data: approvalCard(said.status, { asksReason: true }) } };
}

/** What is left of the time for an answer once it is known who may decide, ms. */
const formMs = 500;

/** The card of the reply as its worker has drawn it last, with the form. It does not stream while it has buttons. */
async function reasonAskedInReply(
  { approvals, cards, clock }: Services,
  bot: Bot,
  said: DecisionResult,
): Promise<EventAnswer> {
  if (said.result !== "counted") {
    const { card: _card, ...toastOnly } = await answerTo(bot, "reject", said);
    return toastOnly;
  }
  const { approval } = said.status;
  try {
    const reading = cards.load(approval.session, approval.turnId);
    const [reply] = await withDeadline(
      clock,
      Promise.all([reading, approvals.noteReasonAsked(approval)]),
      formMs,
    );
    const card = reply?.asking === undefined ? undefined : withReasonForm(reply.asking, approval);
    return card === undefined
      ? toast("error", decisionTexts.failed)
      : { card: { type: "raw", data: card } };
  } catch (error) {
    bot.log.warn({ error, approvalId: approval.id }, "the form for a reason could not be shown");
    return toast("error", decisionTexts.failed);
  }
}

/** The buttons under the question what became of a call. */
async function outcomeClicked(
  services: Services,
  bot: Bot,
  { value, form, by }: PersonClick,
): Promise<EventAnswer | undefined> {
  const { approval: approvalId, action: decision } = value;
  if (typeof approvalId !== "string") return undefined;
  if (decision !== "retry" && decision !== "done" && decision !== "abort") return undefined;
  return await answerOf(
    services,
    bot,
    sayOf({ by, approvalId, decision, note: wordsIn(form, "note"), remember: false }),
  );
}

/** A choice of a question, or the field beside the choices. */
async function answerClicked(
  services: Services,
  bot: Bot,
  { value, form, by }: PersonClick,
): Promise<EventAnswer | undefined> {
  const { approval: approvalId, choice, fields } = value;
  if (typeof approvalId !== "string") return undefined;
  const note = Array.isArray(fields)
    ? filledIn(fields, form)
    : wordsIn(choice === undefined ? form : value, choice === undefined ? "answer" : "choice");
  if (note === undefined) return toast("info", questionTexts.empty);
  const name = (await bot.namesOf([by])).get(by);
  const given = sayOf({ by, approvalId, decision: "answer", note, remember: false });
  const person = name === undefined ? { id: by } : { id: by, name };
  const say = { ...given, decision: { ...given.decision, by: person } };
  return await answerOf(services, bot, say);
}

const maxFields = 10;

/** What a person filled in, by the names of the fields, which the button carries in their order. */
function filledIn(fields: readonly unknown[], form: Click["form"]): string {
  const given = fields.slice(0, maxFields).flatMap((name, at) => {
    const words = wordsIn(form, `field_${at}`);
    return typeof name !== "string" || words === undefined ? [] : [[name, words] as const];
  });
  return JSON.stringify({ action: "accept", content: Object.fromEntries(given) });
}

function sayOf(said: {
  by: string;
  approvalId: string;
  decision: DecisionWord;
  note: string | undefined;
  remember: boolean;
}): GivenDecision {
  const { by, approvalId, decision, note, remember } = said;
  return {
    approvalId,
    decision: {
      decision,
      by: { id: by },
      ...(note === undefined ? {} : { note }),
      ...(remember ? { remember } : {}),
    },
  };
}

const maxWordsLength = 1_000;

/** What a person wrote into a field of the form; undefined when that is nothing. */
function wordsIn(form: Click["form"], field: string): string | undefined {
  return textGiven(form[field], maxWordsLength);
}

function textGiven(written: unknown, characters: number): string | undefined {
  if (typeof written !== "string") return undefined;
  const words = [...written.slice(0, 4 * characters).trim()].slice(0, characters).join("");
  return words === "" ? undefined : words;
}

const decisionTexts = {
  repeated: {
    en: "You have said so already, others still have to.",
    zh: "你已经表态，还需要其他人。",
  },
  failed: {
    en: "Not taken: something did not answer. Please try again.",
    zh: "没有生效：系统没有应答，请再试一次。",
  },
  uncertain: {
    en: "It is not certain that this was taken. Please click again.",
    zh: "不确定是否已生效，请再点一次。",
  },
} as const satisfies Record<string, Bilingual>;

const taken: Readonly<Record<DecisionWord, Bilingual & { type: ToastType }>> = {
  approve: { type: "success", en: "Approved", zh: "已批准" },
  reject: { type: "info", en: "Rejected", zh: "已拒绝" },
  retry: { type: "success", en: "It is run again", zh: "将再次执行" },
  done: { type: "success", en: "Marked as done", zh: "已标记为完成" },
  abort: { type: "info", en: "Given up", zh: "已放弃" },
  answer: { type: "success", en: "Answered", zh: "已回答" },
};

const questionTexts = {
  empty: { en: "Please write an answer first.", zh: "请先写下你的回答。" },
  closed: { en: "This question is not open any more.", zh: "这个问题已经不需要回答了。" },
} as const satisfies Record<string, Bilingual>;

/** Takes a decision and answers the person who clicked with its result. */
async function answerOf(services: Services, bot: Bot, say: GivenDecision): Promise<EventAnswer> {
  return await answerTo(bot, say.decision.decision, await decideApproval(services, bot, say));
}

async function answerTo(bot: Bot, word: DecisionWord, said: DecisionResult): Promise<EventAnswer> {
  switch (said.result) {
    case "settled":
      return withCard(toast(taken[word].type, taken[word]), approvalCard(said.status));
    case "counted":
      return withCard(toast("success", countedText(word, said.status)), approvalCard(said.status));
    case "repeated":
      return withCard(toast("info", decisionTexts.repeated), approvalCard(said.status));
    case "closed":
      return withCard(nothingOpen(word), approvalCard(said.status));
    case "not_allowed":
      return await mayNotDecide(bot, said.status);
    case "unfit":
      return toast("warning", {
        en: `Please check: ${said.error}.`,
        zh: `请检查所填内容：${said.error}`,
      });
    case "unknown":
      return nothingOpen(word);
    case "failed":
      return toast("error", decisionTexts.failed);
    case "uncertain":
      return toast("warning", decisionTexts.uncertain);
  }
}

function countedText(word: DecisionWord, { approval, decisions }: ApprovalStatus): Bilingual {
  const have = decisions.filter(({ decision }) => decision === word).length;
  const need = approval.deciders.count;
  const { en, zh } = taken[word];
  return { en: `${en} (${have} of ${need})`, zh: `${zh}（${have}/${need}）` };
}

function nothingOpen(word: DecisionWord): EventAnswer {
  return word === "answer" ? toast("info", questionTexts.closed) : noPendingApproval();
}

async function mayNotDecide(bot: Bot, { approval }: ApprovalStatus): Promise<EventAnswer> {
  const { deciders, requester } = approval;
  const names = await bot.namesOf([requester.id, ...deciders.people]);
  const [zh = "", en = ""] = replyLanguages.map((language) =>
    decidersText(deciders, {
      language,
      nameOf: (openId) => names.get(openId),
      ...(names.has(requester.id) ? { requester: names.get(requester.id) ?? "" } : {}),
    }),
  );
  return approval.kind === "question"
    ? toast("info", { en: `Only these may answer: ${en}.`, zh: `只有以下人员可以回答：${zh}。` })
    : toast("info", { en: `Only these may decide: ${en}.`, zh: `只有以下人员可以决定：${zh}。` });
}

type ToastType = "info" | "success" | "warning" | "error";

/** A toast; each person's client shows it in its own language, and in English where that is neither. */
function toast(type: ToastType, text: Bilingual): EventAnswer {
  return { toast: { type, content: text.en, i18n: { zh_cn: text.zh, en_us: text.en } } };
}

/** The clicked card is replaced by this one (current version of the callback). */
function withCard(answer: EventAnswer, card: Record<string, unknown>): EventAnswer {
  return { ...answer, card: { type: "raw", data: card } };
}

/** The answer to a click without an approval that could be decided. */
function noPendingApproval(): EventAnswer {
  return toast("info", { en: "no pending approval", zh: "没有待处理的审批" });
}

/** The answer to a person whom the platform does not name: a decision needs a known person. */
function unknownPerson(): EventAnswer {
  return toast("info", {
    zh: "平台没有说明你是谁，操作未执行。",
    en: "The platform does not say who you are, so nothing was done.",
  });
}

/** The answer to a person of a tenant that the bot does not serve. */
function foreignPerson(): EventAnswer {
  return toast("info", {
    zh: refusalText("foreign_tenant", "zh"),
    en: refusalText("foreign_tenant", "en"),
  });
}
