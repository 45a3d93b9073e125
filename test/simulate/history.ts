import type { RunEvent } from "@larkline/sdk";
import type { NormalisedRequest } from "@larkline/testkit";
import { visibleAnswers, type Answer } from "../system/answer.ts";
import type { Requested } from "./callers.ts";
import type { Actions, Written } from "./people.ts";
import type { Said } from "./sayings.ts";
import type { World } from "./world.ts";

// Reads only what people, programs and the model have seen: the messages of the platform, the streams and reports of the
// HTTP API, the requests of the model, and the runs of the tools.

/** What is to be checked. */
export interface Seen {
  world: World;
  actions: Actions;
  /** Runs of the tools: `effect key`. */
  runs: readonly string[];
  /** Messages that have killed a process that was at them, once for each. */
  deaths: readonly string[];
  /** What else went wrong. */
  faults: readonly string[];
}

function answersTo({ world: { feishu } }: Seen, { chatId, messageId = "" }: Written): Answer[] {
  return visibleAnswers(feishu, { chatId, messageId });
}

/** Whether each accepted message has a finished answer, and each run its end. */
export function isAnswered(seen: Seen): boolean {
  const { written, requested } = seen.actions;
  return (
    requested.every((run) => !run.isAccepted || run.shownToOther !== undefined) &&
    written.every(
      (message) => !message.isAccepted || answersTo(seen, message).some(({ finished }) => finished),
    )
  );
}

/** What the product has promised and not kept; in words. */
export function brokenPromises(seen: Seen): string[] {
  return [
    ...seen.actions.written.flatMap((message) => wrongAnswers(seen, message)),
    ...wrongOrder(seen),
    ...seen.actions.requested.flatMap((run) => wrongRun(seen, run)),
    ...wrongOrderOfRuns(seen.actions.requested),
    ...wrongSpeakers(seen),
    ...wrongCalls(seen),
    ...seen.world.model.requests.flatMap((request) => wrongRequest(request, seen)),
  ];
}

function wrongAnswers(seen: Seen, message: Written): string[] {
  const { isAccepted, key } = message;
  const answers = answersTo(seen, message);
  const texts = answers.map(({ text }) => JSON.stringify(text.slice(0, 200))).join(" and ");
  if (answers.length > 1) return [`m${key} has ${answers.length} answers: ${texts}`];
  const [answer] = answers;
  if (answer === undefined) return isAccepted ? [`m${key} was accepted and never answered`] : [];
  if (!answer.finished) return [`the answer to m${key} was never finished: ${texts}`];
  return wrongText(seen, message, answer.text);
}

/** What is wrong with the answer to what was said. */
function wrongText(
  { deaths, faults }: Seen,
  { key, tool, isDeadly }: Said,
  answer: string,
): string[] {
  const shown = JSON.stringify(answer.slice(0, 200));
  if (isDeadly) {
    const died = deaths.filter((one) => one === key).length;
    // Two beside others, three alone. A death of another kind counts as well, and one that is not known does not.
    const isRight = died <= 5 + faults.length && died >= 3 - faults.length;
    return [
      ...(/given up/.test(answer)
        ? []
        : [`m${key} kills each process and is answered by ${shown}`]),
      ...(isRight ? [] : [`m${key} has killed ${died} processes`]),
    ];
  }
  // The model shows the name of who has said it, if the name could be looked up.
  const said = new RegExp(`^\\[(?:\\w+: )?m${key}\\b`);
  if (!said.test(answer)) {
    return [`m${key} is answered by ${shown}, not by what the model says to it`];
  }
  const hasResult = tool === undefined || / (?:ok|failed):/.test(answer);
  return hasResult ? [] : [`m${key} is answered without its call: ${shown}`];
}

/** Each reader of a run sees the same, once and in order, with one end, and the reports agree with it. Others see nothing. */
function wrongRun(seen: Seen, run: Requested): string[] {
  const { key, refusal, isAccepted, readings, shownToOther } = run;
  if (refusal !== undefined) return [`run m${key} was refused: ${refusal}`];
  if (!isAccepted) return [];
  const [end, ...others] = longestOf(readings).filter(
    ({ type }) => type === "done" || type === "error",
  );
  if (end === undefined) return [`run m${key} was accepted and never ended`];
  return [
    ...(others.length > 0 ? [`run m${key} has ${1 + others.length} ends`] : []),
    ...wrongText(seen, run, end.type === "done" ? end.final : JSON.stringify(end)),
    ...wrongReadings(run),
    ...wrongReports(run, end),
    ...(shownToOther === "404" ? [] : [`run m${key} is shown to another caller: ${shownToOther}`]),
  ];
}

function longestOf(readings: readonly RunEvent[][]): RunEvent[] {
  return readings.reduce<RunEvent[]>(
    (longest, one) => (one.length > longest.length ? one : longest),
    [],
  );
}

function wrongReadings({ key, readings }: Requested): string[] {
  const whole = longestOf(readings).map((event) => JSON.stringify(event));
  const isTwice = new Set(whole).size !== whole.length;
  const different = readings.flatMap((events) => {
    const at = events.findIndex((event, place) => JSON.stringify(event) !== whole[place]);
    return at < 0
      ? []
      : [`run m${key} is read differently: ${JSON.stringify(events[at])}, and ${whole[at]}`];
  });
  return [...(isTwice ? [`run m${key} shows an event twice`] : []), ...different];
}

function wrongReports({ key, runId, reports }: Requested, end: RunEvent): string[] {
  const wanted = end.type === "done" ? "done" : "error";
  const states = reports.map(({ state }) => state);
  const isOpen = (state: string): boolean =>
    state === "queued" || state === "running" || state === "waiting";
  const over = states.slice(states.findIndex((state) => !isOpen(state)));
  const final = reports.at(-1);
  return [
    ...(over.every((state) => state === wanted)
      ? []
      : [`run m${key} is ${wanted} and reported as ${states.join()}`]),
    ...(end.type !== "done" || final?.final_output === end.final
      ? []
      : [
          `run m${key} is reported to have said ${JSON.stringify(final?.final_output)}, not ${end.final}`,
        ]),
    ...(reports.every((report) => report.run_id === runId)
      ? []
      : [`run m${key} is reported by another id`]),
  ];
}

/** The runs of a session end in the order in which they were taken. */
function wrongOrderOfRuns(requested: readonly Requested[]): string[] {
  const ended = requested.filter(({ endedAtMs }) => endedAtMs !== undefined);
  return ended.flatMap(({ key, endedAtMs = 0 }, at) => {
    const before = ended[at - 1];
    return before !== undefined && endedAtMs < (before.endedAtMs ?? 0)
      ? [`run m${key} ended before m${before.key}`]
      : [];
  });
}

/** Once a conversation is handed over, the other agent answers in it. In a group there is no one order to tell by. */
function wrongSpeakers(seen: Seen): string[] {
  const alone = seen.actions.written.filter(({ isGroup }) => !isGroup);
  const inChats = [...Map.groupBy(alone, ({ chatId }) => chatId).values()].map((all) =>
    all.map((said) => ({ said, answer: answersTo(seen, said)[0]?.text })),
  );
  const inRuns = seen.actions.requested.map((said) => ({ said, answer: answerOf(said) }));
  return [...inChats, inRuns].flatMap((conversation) => {
    let isHandedOver = false;
    return conversation.flatMap(({ said: { key, tool, isDeadly }, answer }) => {
      if (answer === undefined || isDeadly) return [];
      isHandedOver ||= tool === "transfer_to_expert";
      const isByExpert = answer.endsWith(" by expert");
      return isByExpert === isHandedOver
        ? []
        : [`m${key} is answered by the wrong agent: ${JSON.stringify(answer)}`];
    });
  });
}

function answerOf({ readings }: Requested): string | undefined {
  return readings.flat().find((event) => event.type === "done")?.final;
}

/** To each person in a chat the answers come in the order in which their messages were accepted. */
function wrongOrder(seen: Seen): string[] {
  const people = Map.groupBy(seen.actions.written, ({ chatId, openId }) => `${chatId} ${openId}`);
  return [...people.values()].flatMap((own) => {
    const [first] = own;
    const places = seen.world.feishu
      .messages(first?.chatId ?? "")
      .map(({ messageId }) => messageId);
    const answered = own.flatMap((message) => {
      const [answer] = answersTo(seen, message);
      return answer === undefined
        ? []
        : [{ key: message.key, at: places.indexOf(answer.messages[0]?.messageId ?? "") }];
    });
    return answered.flatMap(({ key, at }, index) => {
      const before = answered[index - 1];
      return before !== undefined && at < before.at
        ? [`m${key} was answered before m${before.key}`]
        : [];
    });
  });
}

/** A `once` call runs at most once, and one that needs an approval only when the person who asked for it has approved. */
function wrongCalls({ runs, actions }: Seen): string[] {
  const once = Map.groupBy(
    runs.filter((run) => run.startsWith("once ")),
    (run) => run,
  );
  const repeated = [...once].flatMap(([run, all]) =>
    all.length > 1 ? [`${run} ran ${all.length} times`] : [],
  );
  const unapproved = actions.written.flatMap(({ key, needsApproval, chatId, openId }) => {
    if (!needsApproval || !once.has(`once ${key}`)) return [];
    const isApproved = actions.decisions.some(
      (decision) =>
        decision.chatId === chatId && decision.openId === openId && decision.word === "approve",
    );
    return isApproved ? [] : [`once ${key} ran although its writer has not approved it`];
  });
  return [...repeated, ...unapproved];
}

/** The model is asked for what people wrote, in their order, each message of theirs once, each call with its result. */
function wrongRequest({ messages }: NormalisedRequest, { actions }: Seen): string[] {
  const texts = messages
    .filter(({ role }) => role === "user")
    .flatMap(({ text, blocks }) => blocks ?? [text]);
  const keys = texts.flatMap((text) => /^(?:\w+: )?[mh](\d\d)/.exec(text)?.[1] ?? []);
  const problems: string[] = [];
  if (new Set(keys).size !== keys.length) {
    problems.push(`the model is asked for ${keys.join(", ")}: one of them twice`);
  }
  const { written, requested } = actions;
  const conversations = [
    ...written.map((said) => [said.key, said.chatId]),
    ...requested.map((said) => [said.key, said.session]),
  ];
  const seen = new Set(
    conversations.flatMap(([key = "", conversation]) => (keys.includes(key) ? [conversation] : [])),
  );
  if (seen.size > 1) {
    problems.push(`the model sees messages of different conversations: ${keys.join(", ")}`);
  }
  const calls = messages.flatMap((message) => message.calls.map(({ id }) => id));
  const results = messages.flatMap((message) => message.results.map(({ id }) => id));
  const pairs = `calls ${calls.join()} with results ${results.join()}`;
  if (calls.join() !== results.join()) problems.push(`the model sees ${pairs}`);
  return problems;
}

/** The run in the order of its events, for people. */
export function chronicle({ world: { feishu }, actions, runs, deaths }: Seen): string[] {
  const chats = [...feishu.chats.keys()].flatMap((chatId, at) => [
    `chat ${at + 1}:`,
    ...feishu.messages(chatId).map(({ senderType, text, messageId, parentId, recalled }) => {
      const to = parentId === undefined ? "" : ` to ${parentId.slice(0, 9)}`;
      return `  ${messageId.slice(0, 9)} ${senderType}${to}${recalled ? " (recalled)" : ""}: ${JSON.stringify(text)}`;
    }),
  ]);
  const clicks = actions.decisions.map(
    ({ atMs, word, toast }) =>
      `  ${atMs.toFixed(0)} ms: ${word}, answered by ${toast ?? "nothing"}`,
  );
  const requests = actions.requested.map(({ text, reports, readings, runId }) => {
    const states = reports.map(({ state }) => state).join();
    const read = readings.map((events) => `${events.length} ${events.at(-1)?.type}`).join();
    return `  ${runId} ${JSON.stringify(text)}: ${states}; read ${read}`;
  });
  return [
    ...chats,
    "clicks:",
    ...clicks,
    "runs over HTTP:",
    ...requests,
    "runs of tools:",
    ...runs.map((run) => `  ${run}`),
    `deadly: ${deaths.join()}`,
  ];
}
